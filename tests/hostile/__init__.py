"""Hostile input by the thousand: files, arguments and names that are wrong by accident or on purpose.

A case writes its files into a folder of its own and does one thing with them. Whatever it is, one of two things may
happen: it works, and the answer is the right one, or one `KrepesError` names what is wrong and where (a command: exit
code 2 and one line). Never a traceback, never more than ten seconds, never a file outside the folder, never a program
started, never the canary, a file that only code from a file would create.

    case.py     what a case is                  watch.py   what must not happen, seen by an audit hook
    mutate.py   damage to bytes, by seed        run.py     one case, its verdict, and the table by kind

    kinds/      one file per kind with a function ``cases(rng)`` that yields them, entered in ``kinds.KINDS``

A new kind is one file in ``kinds/`` and one line in ``KINDS``. Cases of the command line give ``run`` a tuple of
arguments instead of a function, ``("fit", "table.csv", "--out", "run")``: they are run in the folder, and pass if they
leave with code 0 or 2 as ``expect`` says. TOML files, arguments and run folders go there, into ``kinds/shell.py``.

``make test`` runs a part, the same each time; ``make slow`` all of them, with the table.
"""
