"""The command line and the writer of stub files. They use the public classes, and only ``__main__`` uses them."""
