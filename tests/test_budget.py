"""The budget's arithmetic: never exceeded, never less than one row, refused with the bytes that would do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.errors import InvalidInputError

SIZES = st.integers(1, 2**45)


@given(
    total=SIZES,
    row=st.one_of(SIZES, st.floats(0, 2**45)),
    fixed=st.integers(0, 2**45),
    share=st.sampled_from([1 / 8, 1 / 4, 1 / 2, 1.0]),
    most=st.one_of(st.none(), st.integers(0, 1000)),
)
def test_rows_fill_the_share_and_nothing_beyond_it(total, row, fixed, share, most):
    row = max(row, 1)  # less than a byte per row makes no sense, and counts as one
    if fixed + row > total:
        with pytest.raises(InvalidInputError, match=re.escape(f"({total} bytes) does not hold")):
            Budget(total).rows(row, what="a sample", fixed=fixed, share=share, most=most)
        return
    found = Budget(total).rows(row, what="a sample", fixed=fixed, share=share, most=most)
    assert found >= 1
    assert fixed + found * row <= total
    assert found == 1 or fixed + found * row <= share * total
    # One more would be too many, unless more are of no use.
    assert (most is not None and found >= most) or fixed + (found + 1) * row > share * total * (1 - 1e-12)
    assert most is None or found <= max(most, 1)


@given(total=SIZES, row=SIZES, fixed=st.integers(0, 2**45))
def test_the_refusal_names_the_smallest_budget_that_does(total, row, fixed):
    if fixed + row <= total:
        return
    with pytest.raises(InvalidInputError) as refusal:
        Budget(total).rows(row, what="a sample", fixed=fixed)
    needed = int(re.search(r"to (\d+) bytes or more", str(refusal.value))[1])
    assert Budget(needed).rows(row, what="a sample", fixed=fixed) == 1
    if needed > 1:
        with pytest.raises(InvalidInputError):
            Budget(needed - 1).rows(row, what="a sample", fixed=fixed)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512MiB", 512 * 2**20),
        ("512 mib", 512 * 2**20),
        ("2G", 2 * 2**30),
        ("2g", 2 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("64K", 2**16),
        ("1T", 2**40),
        (" 100 B ", 100),
    ],
)
def test_text_is_read(text, size):
    assert Budget.of(text) == Budget(size)
    assert Budget.of(Budget(size)) is not None


@pytest.mark.parametrize("wrong", ["", "G", "2 X", "-1G", "0", "0.1B", "1e9", 0, -5, 1.5, True, None])
def test_what_is_no_budget_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=r"is no budget: .*(2G|bytes)"):
        Budget.of(wrong)


@given(SIZES)
def test_a_budget_prints_what_can_be_read_again(size):
    text = str(Budget(size))
    number = text.replace("bytes", "B")
    assert Budget.of(number).bytes == pytest.approx(size, rel=1e-3, abs=1)


def test_fits_is_about_the_share():
    assert Budget(100).fits(50, share=1 / 2)
    assert not Budget(100).fits(51, share=1 / 2)
    assert DEFAULT_BUDGET.bytes == 2**30
