"""The questions that an audit asks, one file each; `krepes.registry.AUDITS` lists them in the order they are shown."""
