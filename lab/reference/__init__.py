"""The generated part of the documentation: reference pages, manual pages and the index of the site."""
