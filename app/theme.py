"""The look: one accent, system fonts, colours by meaning (Okabe-Ito, safe for colour-blind eyes).

Knows Gradio themes; the rest of the colours live in style.css under the same names.
"""

from __future__ import annotations

import gradio as gr

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "DejaVu Sans Mono", "Consolas", "monospace")


def build_theme() -> gr.themes.Base:
    """System fonts only, so that the page needs nothing from the network."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.emerald,
        neutral_hue=gr.themes.colors.zinc,
        font=list(_SANS),
        font_mono=list(_MONO),
        radius_size=gr.themes.sizes.radius_sm,
        spacing_size=gr.themes.sizes.spacing_sm,
        text_size=gr.themes.sizes.text_sm,
    ).set(
        button_primary_background_fill="#00694d",
        button_primary_background_fill_hover="#00553e",
        button_primary_text_color="#ffffff",
        button_primary_background_fill_dark="#00694d",
        button_primary_background_fill_hover_dark="#00805e",
        button_primary_text_color_dark="#ffffff",
        slider_color="#00694d",
        slider_color_dark="#1fae86",
        block_label_text_color="*neutral_700",
        block_label_text_color_dark="*neutral_200",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_shadow="none",
        block_border_width="1px",
    )
