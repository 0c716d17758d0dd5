"""Where the page is served, and how it looks."""

import os
from pathlib import Path

import gradio as gr

STYLE = Path(__file__).with_name("page.css").read_text("utf-8")
FONT = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]  # of the system: none is fetched
MONOSPACE = ["ui-monospace", "Menlo", "monospace"]


def serve(page: gr.Blocks, host: str, port: int) -> None:
    """Serve the page from threads of this process; nothing is asked of the network or shared with it."""
    for name in ("no_proxy", "NO_PROXY"):  # gradio asks its own page for an answer
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), host, "localhost"]))
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="zinc", font=FONT, font_mono=MONOSPACE)
    theme.set(block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_400")
    page.launch(
        server_name=f"[{host}]" if ":" in host else host,  # as in an address
        server_port=port,
        theme=theme,
        css=STYLE,
        inbrowser=False,
        quiet=True,
        prevent_thread_lock=True,
        show_error=True,
        footer_links=["settings"],
        share=False,
        enable_monitoring=False,
        mcp_server=False,
        run_history=False,
        pwa=False,
        ssr_mode=False,
    )
