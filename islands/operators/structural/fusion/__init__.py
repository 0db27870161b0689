"""Two launches made one: which can be, by which indices their elements meet, and the kernel that does both."""
