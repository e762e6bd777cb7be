//! A view as a page of its own: one HTML file that runs nothing and loads nothing.

use super::view::{Part, View, escaped, one_line};

/// For a phone, a desk, light, dark and paper. Wide tables scroll in a box of their own, and the rest of the
/// page never does; on paper nothing can be scrolled, so that everything has to fit.
const STYLE: &str = "\
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0 auto;max-width:66em;padding:1em;font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5em;line-height:1.25;margin:.4em 0}
h2{font-size:1.25em;line-height:1.3;margin:2em 0 .4em;border-top:1px solid;padding-top:.8em}
h3{font-size:1.05em;margin:1.6em 0 .4em}
p{margin:.5em 0;max-width:45em}
.table{overflow-x:auto;max-width:100%;overflow-wrap:normal;font-size:14px;line-height:1.35}
thead th{border-bottom:1px solid}
tbody tr+tr td{border-top:1px solid rgba(128,128,128,.3)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,23em),1fr));gap:1em;align-items:start}
figure{margin:0;max-width:38em}
figure svg{width:100%}
@media print{
@page{margin:14mm 12mm}
:root{color-scheme:light}
body{max-width:none;padding:0;font-size:10pt}
h1,h2,h3{break-after:avoid}
p{max-width:none;orphans:3;widows:3}
.table{overflow:visible;font-size:7.5pt}
.table th,.table td{padding:.2em .4em!important}
tr,figure{break-inside:avoid}
.charts{grid-template-columns:1fr 1fr;gap:4mm}
}";

/// Whatever a text from a file brings along, a browser runs nothing and asks nobody.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl View {
    /// A complete document, without the JSON.
    pub fn page(&self) -> String {
        let title = escaped(&one_line(&self.title));
        let mut body = format!("<h1>{title}</h1>\n");
        for parts in self.parts.chunk_by(|one, next| one.is_picture() && next.is_picture()) {
            let html: String = parts.iter().map(of_page).collect();
            body += &if parts.iter().any(Part::is_picture) {
                format!("<div class=\"charts\">\n{html}</div>\n")
            } else {
                html
            };
        }
        format!(
            "<!DOCTYPE html>\n<html lang=\"fr\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }
}

impl Part {
    fn is_picture(&self) -> bool {
        matches!(self, Self::Picture(_))
    }
}

fn of_page(part: &Part) -> String {
    match part {
        Part::Heading(level, text) => format!("<h{level}>{}</h{level}>\n", escaped(&one_line(text))),
        // With the keyboard, too, a table can be scrolled.
        Part::Grid(grid) => format!("<div class=\"table\" tabindex=\"0\">{}</div>\n", grid.html()),
        Part::Picture(svg) => format!("<figure>{svg}</figure>\n"),
        Part::Note(note) => format!("<p>{}</p>\n", escaped(&one_line(note))),
    }
}
