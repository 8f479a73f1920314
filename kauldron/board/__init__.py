"""A page over runs: `kauldron board` serves it, `kauldron report` writes it to a file.

`contents` answers questions about runs as plain data, `media` reads the pictures,
histograms and texts of event files, `server` puts both behind a loopback address, and
`report` puts the answers into one HTML file. `page/` holds what the browser gets: no build
step, no network.
"""

from __future__ import annotations

from kauldron.lazy_namespace import lazy_imports

with lazy_imports(__name__):
    from kauldron.board.contents import Contents as Contents
    from kauldron.board.report import write_report as write_report
    from kauldron.board.server import make_app as make_app
    from kauldron.board.server import serve as serve
