"""What sections that explain the step of the objective say where there was none."""

NOTHING = (
    "There is nothing to attribute: no step lowered the objective, so no landmark moved any sample. Fit again with "
    "more damping, or check the data and its views."
)
