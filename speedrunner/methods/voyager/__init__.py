"""Voyager (paper, section 4.1 and Appendix F)."""
