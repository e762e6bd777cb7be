//! What is shown gives no orders: not to a page, not to a terminal, not to a notebook's kernel.

use iteragpu_lab::{LabError, Present, Shown, outcome_text, show};

/// Every element that the library writes.
const ELEMENTS: [&str; 28] = [
    "div", "strong", "table", "thead", "tbody", "tr", "th", "td", "br", "span", "p", "details", "summary", "pre",
    "svg", "rect", "text", "line", "polyline", "polygon", "path", "circle", "html", "body", "h1", "h2", "h3", "figure",
];

pub fn assert_inert(shown: &Shown) {
    assert_tags(shown.html());
    assert_text(shown.html());
    assert_text(shown.text());
}

/// Shows an outcome both ways.
pub fn assert_shows<T: Present>(outcome: &Result<T, LabError>) {
    assert_inert(&show(outcome));
    assert_text(&outcome_text(outcome));
}

/// A refusal of what was read or entered: said in words, and told from other failures.
pub fn assert_refused<T: Present>(outcome: &Result<T, LabError>) {
    assert_shows(outcome);
    let error = outcome.as_ref().err().expect("a refusal");
    assert_eq!(error.exit_code(), 2, "{error}");
    let explanation = error.explain();
    assert!(!explanation.happened.is_empty() && !explanation.not_done.is_empty(), "{error:?}");
}

pub fn assert_text(text: &str) {
    assert!(!text.contains("EVCXR_"), "speaks to the kernel: {text}");
    let steers = |c: &char| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c);
    assert_eq!(text.chars().find(steers), None, "speaks to the terminal: {text:?}");
}

/// A page of its own: its head is ours but for the title, its body as what a notebook shows.
pub fn assert_page(page: &str) {
    let (head, body) = page.split_once("</head>\n").unwrap();
    assert_tags(body);
    assert_text(page);
    let (before, title) = head.split_once("<title>").unwrap();
    let (title, style) = title.split_once("</title>\n<style>").unwrap();
    assert!(before.contains("default-src 'none'") && !title.contains(['<', '>']), "{head}");
    assert!(!style.contains("url(") && !style.contains("@import"), "{style}");
}

fn assert_tags(html: &str) {
    let tags = html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default());
    for tag in tags {
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        assert!(ELEMENTS.contains(&name), "<{tag}>");
        // In the text between tags, the same letters load nothing.
        assert!(!tag.contains("url("), "<{tag}>");
        // Quoted values apart, what remains are the names of attributes.
        let names: String = tag.split('"').step_by(2).collect();
        assert!(!names.contains(" on") && !names.contains("href") && !names.contains("src"), "<{tag}>");
    }
}
