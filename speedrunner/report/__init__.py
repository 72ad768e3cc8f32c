"""Pages for people: what runs came to, as figures and tables in one file. No number is computed here."""
