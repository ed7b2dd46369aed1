"""Small tools of every room, none of them public."""
