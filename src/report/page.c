#include "report/page.h"

/* Colours of pictures on a dark page: the text, the paper, the grid, and the series whose own would be too dark. */
#define ON_DARK "@media screen and (prefers-color-scheme:dark){"
#define DARK_PICTURE                                                                                                   \
    "svg{fill:#ddd}.paper{fill:#16181c}.grid{stroke:#3a3d44}.note{fill:#a5a5a5}.c0{stroke:#6a7dff}.f0{fill:#6a7dff}"   \
    ".c7{stroke:#eee}.f7{fill:#eee}}\n"

static const char style[] =
    ":root{color-scheme:light dark}\n"
    "body{font:15px/1.5 Helvetica,Arial,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222;"
    "background:#fff}\n"
    "h1{margin-bottom:0;overflow-wrap:anywhere}h2{margin:1.6em 0 .4em}p{margin:.2em "
    "0;color:#666}.lines{white-space:pre-line}\n"
    "table{border-collapse:collapse;width:100%;max-width:44em}\n"
    "td,th{border-bottom:1px solid #ddd;padding:.25em "
    "0;overflow-wrap:anywhere;vertical-align:top}td:first-child{overflow-wrap:normal}\n"
    "td+td,th+th{padding-left:1.5em;text-align:right;font-variant-numeric:tabular-nums}\n"
    /* A wide table is as wide as the text, or as the window where it needs that; beyond, it scrolls below its first
       column. */
    ".wide-table{overflow-x:auto;min-width:100%;width:max-content;max-width:calc(100vw - "
    "2.5em);position:relative;left:50%;transform:translateX(-50%)}\n"
    ".wide-table table{width:auto;max-width:none}.wide-table td{white-space:nowrap}\n"
    ".wide-table th{vertical-align:bottom;overflow-wrap:break-word}.wide-table td+td,.wide-table "
    "th+th{padding-left:1em}\n"
    ".wide-table td:first-child,.wide-table th:first-child{position:sticky;left:0;background:#fff;padding-right:.5em}\n"
    ".left,td+td.left,th+th.left{text-align:left}\n"
    "pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:13px}\n"
    "svg{display:block;max-width:100%;height:auto;margin:1em 0}.small svg{margin:.5em auto}\n"
    ".small{display:none}\n"
    "@media (max-width:700px){body{padding:0 .6em;margin:1em auto}.large{display:none}.small{display:block}\n"
    "td+td,th+th{padding-left:1em}.wide-table td:first-child{white-space:normal}}\n"
    "@media print{.small{display:none}.large{display:block}body{margin:0}h2{break-after:avoid}svg{break-inside:avoid}\n"
    ".wide-table{position:static;transform:none;width:auto;max-width:none;font-size:80%}\n"
    ".wide-table td{white-space:normal;overflow-wrap:normal}}\n" ON_DARK
    "body{color:#ddd;background:#16181c}p{color:#a5a5a5}\n"
    "td,th{border-color:#3a3d44}.wide-table td:first-child,.wide-table "
    "th:first-child{background:#16181c}pre{background:#22252b}" DARK_PICTURE;

void page_begin(Buf *out, const char *title, const char *subtitle)
{
    buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>Cairn: ");
    markup_text(out, title);
    buf_printf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    markup_text(out, title);
    buf_puts(out, "</h1>\n<p>");
    markup_text(out, subtitle);
    buf_puts(out, "</p>\n");
}

void page_end(Buf *out) { buf_puts(out, "</body></html>\n"); }

void page_title(Buf *out, const char *title)
{
    buf_puts(out, "<h2>");
    markup_text(out, title);
    buf_puts(out, "</h2>\n");
}

void page_lines(Buf *out, const char *lines)
{
    buf_puts(out, "<p class=\"lines\">");
    markup_text(out, lines);
    buf_puts(out, "</p>\n");
}

void page_rows_begin(Buf *out, const char *title)
{
    page_title(out, title);
    buf_puts(out, "<table>\n");
}

void page_rows_end(Buf *out) { buf_puts(out, "</table>\n"); }

void page_row(Buf *out, const char *name, const char *value)
{
    buf_puts(out, "<tr><td>");
    markup_text(out, name);
    buf_puts(out, "</td><td>");
    markup_text(out, value);
    buf_puts(out, "</td></tr>\n");
}

void page_figure(Buf *out, const char *name, const char *format, ...)
{
    Buf value = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&value, format, args);
    va_end(args);
    page_row(out, name, value.data);
    buf_free(&value);
}

void page_bytes(Buf *out, const char *name, double bytes)
{
    if (bytes < 100 * 1024)
        page_figure(out, name, "%.1f KiB", bytes / 1024);
    else
        page_figure(out, name, "%.1f MiB", bytes / (1 << 20));
}

void page_chart(Buf *out, const Chart *chart)
{
    Chart narrow = *chart;
    narrow.width = PAGE_NARROW;
    buf_puts(out, "<div class=\"large\">\n");
    chart_svg(chart, out);
    buf_puts(out, "</div>\n<div class=\"small\">\n");
    chart_svg(&narrow, out);
    buf_puts(out, "</div>\n");
}

Status page_chart_file(Buf *out, const Chart *chart, const char *about, const char *folder, const char *name)
{
    Chart own = *chart;
    Buf svg = {0};
    own.about = about;
    page_chart(out, &own);
    chart_svg(&own, &svg);
    return svg_write(folder, name, &svg);
}

Status svg_write(const char *folder, const char *name, Buf *svg)
{
    Buf out = {0};
    size_t head = strcspn(svg->data, "\n") + 1;
    buf_append(&out, svg->data, head);
    buf_puts(&out, "<style>" ON_DARK DARK_PICTURE "</style>\n");
    buf_append(&out, svg->data + head, svg->len - head);
    buf_free(svg);
    return file_write_text(folder, name, &out);
}
