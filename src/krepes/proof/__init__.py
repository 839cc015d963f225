"""Do row-level causes predict retraining here? Random halves are retrained, and every answer is judged by them."""

from krepes.proof.judging import prove
from krepes.proof.result import Proof
from krepes.proof.subject import Subject

__all__ = ["Proof", "Subject", "prove"]
