"""The endpoints, one file a group; `table` lists them."""
