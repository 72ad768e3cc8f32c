"""Result pages for people: figures and tables in one file. No number is computed here."""
