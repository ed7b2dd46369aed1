"""Small tools shared by the whole package, none of them public."""
