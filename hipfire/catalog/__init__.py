"""Models that can be had (registry), that are here (store), and the way from one to the other (pull)."""
