"""`python -m lambdanets.cli` is the command `lambdanets`."""

from lambdanets.cli.main import main

if __name__ == "__main__":
    main()
