"""The errors and warnings KREPES raises on purpose; each message says what broke, what was required, what to do."""


class KrepesError(Exception):
    """Base of every error that KREPES raises on purpose."""


class InvalidInputError(KrepesError, ValueError):
    """Data, weights or arguments that cannot be used: wrong shape, not finite, empty, out of range."""


class UnsupportedEncoderError(KrepesError, TypeError):
    """An encoder whose tangent kernel is not defined or cannot be computed exactly."""


class RankDeficientKernelError(KrepesError, ValueError):
    """A kernel matrix with fewer usable directions than were asked for."""


class NonConvexOuterError(KrepesError, ValueError):
    """A user's outer loss that is not convex, so that its Gauss-Newton matrix is not positive."""


class NotFittedError(KrepesError, RuntimeError):
    """A result was asked of an object that has not been fitted."""


class RunFolderError(KrepesError, OSError):
    """A run folder that is missing, truncated, of another version, or not ours."""


class ConvergenceWarning(UserWarning):
    """A solve stopped before its tolerance; the result says how far it came."""


class PrecisionWarning(UserWarning):
    """Half-precision weights or an outer ``torch.autocast``: the computation is done in float32 or better instead."""
