"""What is true: the rules of the tree, as pure functions over frozen values. No I/O, no clock."""
