import subprocess
import sys
import textwrap

from kauldron.import_hooks import on_import


def _run(script: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def test_callback_of_a_loaded_module_runs_at_once():
    seen = []
    on_import("sys", lambda: seen.append("called"))
    assert seen == ["called"]


def test_callbacks_run_once_after_the_import_and_leave_the_loader_alone():
    output = _run("""
        import sys
        from kauldron.import_hooks import on_import
        seen = []
        on_import("json.tool", lambda: seen.append(hasattr(sys.modules["json.tool"], "main")))
        on_import("json.tool", lambda: seen.append("second"))
        assert seen == [] and "json.tool" not in sys.modules
        import json.tool, importlib
        importlib.reload(json.tool)
        print(seen, type(json.tool.__spec__.loader).__name__)
        """)
    assert output == "[True, 'second'] SourceFileLoader"


def test_error_of_a_callback_reaches_the_import_statement():
    output = _run("""
        from kauldron.import_hooks import on_import
        def fail(): raise ValueError("from the callback")
        on_import("json.tool", fail)
        try:
            import json.tool
        except ValueError as error:
            print(error)
        """)
    assert output == "from the callback"


def test_missing_module_is_still_a_module_not_found_error():
    output = _run("""
        from kauldron.import_hooks import on_import
        on_import("no_such_module_here", print)
        try:
            import no_such_module_here
        except ModuleNotFoundError as error:
            print(error)
        """)
    assert output == "No module named 'no_such_module_here'"
