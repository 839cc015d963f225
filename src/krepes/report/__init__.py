"""The report: results become plain data, plain data becomes one HTML file that needs no network."""

from krepes.report.build import build_report, report_of
from krepes.report.content import Report, Section, join
from krepes.report.html import render, write_report

__all__ = ["Report", "Section", "build_report", "join", "render", "report_of", "write_report"]
