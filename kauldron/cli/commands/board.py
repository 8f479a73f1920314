"""`kauldron board` and `kauldron report`."""

from __future__ import annotations

import argparse

from kauldron.cli.command_table import OK, Implementation
from kauldron.cli.terminal import UsageError, existing_folder


class Board(Implementation):
    """Show runs in the browser: curves, tables, pictures, sweeps, configs, logs.

    The page keeps itself up to date. Nothing outside of the folder can be read.
    """

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "folder",
            nargs="?",
            default=".",
            type=existing_folder,
            help="a workdir, or a folder of workdirs and experiments (default: .)",
        )
        parser.add_argument(
            "--port", type=int, default=6007, help="default: 6007, or the next one free"
        )
        parser.add_argument(
            "--host",
            default="127.0.0.1",
            help="address to listen on (default: this machine only)",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f"The board needs {error.name}: pip install 'kauldron[board]'"
            ) from error
        from kauldron.board import serve

        def ready(address: str) -> None:
            print(f"{args.folder}: {address} (Ctrl-C ends)", flush=True)

        try:
            serve(args.folder, host=args.host, port=args.port, ready=ready)
        except (OSError, OverflowError) as error:
            raise UsageError(str(error)) from error
        return OK


class Report(Implementation):
    """Write the board of some runs as one HTML file that needs no server."""

    configs = ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "workdirs",
            nargs="+",
            metavar="WORKDIR",
            type=existing_folder,
            help="workdirs, or folders of workdirs",
        )
        parser.add_argument(
            "-o", "--output", default="report.html", help="default: report.html"
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        from kauldron.board.report import write_report

        try:
            path = write_report(args.output, *args.workdirs)
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from error
        print(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).")
        return OK
