# SPDX-License-Identifier: Apache-2.0
# Sphinx's configuration of the site; stage.py copies it next to the pages it has prepared.
project = "Imbrex"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_extra"]
myst_heading_anchors = 4  # as on the repository's page, so that links to sections work in both places
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "Imbrex"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_show_search_summary = False  # it would read other pages, which a browser refuses for file://
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
highlight_language = "none"
