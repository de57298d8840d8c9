"""`python -m hipfire`."""

from hipfire.cli.main import main

if __name__ == "__main__":
    main()
