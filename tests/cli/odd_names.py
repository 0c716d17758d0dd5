"""Names that are hard to handle."""

# Of a folder; a shell that does not quote makes several words, patterns or commands of it.
ODD_NAME = """- a 'b" $(exit) `exit`;*?&\né,"""
