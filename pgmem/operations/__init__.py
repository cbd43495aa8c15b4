"""What happens: one file, one operation."""
