//! What a notebook of this project may hold, what it holds beyond that, and its text without it.

use iteragpu_lab::cli::one_line;

use crate::json_text::{self, Edits, Member, Object};

const NOTEBOOK_FIELDS: &[&str] = &["cells", "metadata", "nbformat", "nbformat_minor"];
const NOTEBOOK_METADATA: &[&str] = &["kernelspec", "language_info", "license"];
const KERNELSPEC: &[&str] = &["display_name", "language", "name"];
const LANGUAGE_INFO: &[&str] = &["file_extension", "mimetype", "name"];
const TEXT_CELL_FIELDS: &[&str] = &["attachments", "cell_type", "id", "metadata", "source"];
const CODE_CELL_FIELDS: &[&str] = &["cell_type", "execution_count", "id", "metadata", "outputs", "source"];
const CELL_METADATA: &[&str] = &["tags"];

/// Where a code cell can run: each carries at least one of these.
const PLACE_TAGS: &[&str] = &["cpu-only", "environment-check", "requires-gpu"];
/// What else a cell may be. `raises-exception` is Jupyter's own, and `cargo xtask notebook` heeds it.
const OTHER_TAGS: &[&str] = &["definitions", "optional-export", "raises-exception"];

/// As much as a line shows of a text from a notebook.
const SHOWN: usize = 60;

/// One thing that has no place in a notebook of this project, or that is missing there.
#[derive(Debug)]
pub struct Fault {
    /// The cell, by its id where that names one cell, else by its number.
    place: String,
    what: String,
    /// Cleaning takes it away. What remains is for people: it would change a text, an id or a tag.
    pub removable: bool,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} : {}", self.place, self.what)
    }
}

/// A notebook's faults, and its text without those that can be taken away.
pub struct Inspection {
    pub faults: Vec<Fault>,
    pub cleaned: String,
}

/// The faults of the notebook in `document`, or the reason why it is no notebook.
pub fn inspect(document: &str) -> Result<Inspection, String> {
    let mut inspector = Inspector { place: String::new(), faults: Vec::new(), edits: Edits::of(document) };
    inspector.document(document)?;
    Ok(Inspection { faults: inspector.faults, cleaned: inspector.edits.apply() })
}

struct Inspector<'a> {
    /// What is being looked at.
    place: String,
    faults: Vec<Fault>,
    edits: Edits<'a>,
}

impl<'a> Inspector<'a> {
    fn document(&mut self, document: &'a str) -> Result<(), String> {
        const BYTE_ORDER_MARK: &str = "\u{feff}";
        "notebook".clone_into(&mut self.place);
        let mut json = document;
        if let Some(rest) = document.strip_prefix(BYTE_ORDER_MARK) {
            self.removable("marque d'ordre des octets (BOM) en tête, que Jupyter ne lit pas".to_owned());
            self.edits.replace(&document[..BYTE_ORDER_MARK.len()], "");
            json = rest;
        }
        let value = json_text::value(json)
            .map_err(|error| format!("ce n'est pas du JSON (ligne {}, colonne {})", error.line(), error.column()))?;
        let notebook = object(value, "le document")?;
        let cells = notebook.get("cells").and_then(json_text::items).ok_or("pas de liste de cellules")?;
        let numbered = cells.iter().zip(1..).map(|(cell, number)| object(cell, &format!("la cellule n° {number}")));
        let cells: Vec<_> = numbered.collect::<Result<_, _>>()?;
        self.format(&notebook);
        self.keep_only(&notebook, NOTEBOOK_FIELDS, "champ étranger");
        self.notebook_metadata(&notebook)?;
        self.cells(&cells)
    }

    fn format(&mut self, notebook: &Object<'a>) {
        let version = ["nbformat", "nbformat_minor"].map(|field| notebook.get(field).unwrap_or("?"));
        if version != ["4", "5"] {
            self.lasting(format!("format nbformat {}, au lieu de 4.5", one_line(&version.join("."), SHOWN)));
        }
    }

    fn notebook_metadata(&mut self, notebook: &Object<'a>) -> Result<(), String> {
        let Some(metadata) = notebook.get("metadata") else {
            self.lasting("noyau absent (metadata.kernelspec)".to_owned());
            return Ok(());
        };
        let metadata = object(metadata, "metadata")?;
        self.keep_only(&metadata, NOTEBOOK_METADATA, "métadonnée étrangère");
        self.only_text(&metadata, "license");
        self.kernel(&metadata)?;
        self.language(&metadata)
    }

    fn kernel(&mut self, metadata: &Object<'a>) -> Result<(), String> {
        let Some(kernel) = metadata.get("kernelspec") else {
            self.lasting("noyau absent (metadata.kernelspec)".to_owned());
            return Ok(());
        };
        let kernel = object(kernel, "metadata.kernelspec")?;
        self.keep_only(&kernel, KERNELSPEC, "métadonnée étrangère");
        self.only_text(&kernel, "display_name");
        for (field, what) in [("name", "noyau"), ("language", "langage du noyau")] {
            match kernel.get(field) {
                Some(value) if json_text::text(value).as_deref() == Some("rust") => {}
                Some(value) => self.lasting(format!("{what} : {}, au lieu de \"rust\"", one_line(value, SHOWN))),
                None => self.lasting(format!("{what} absent (metadata.kernelspec.{field})")),
            }
        }
        Ok(())
    }

    fn language(&mut self, metadata: &Object<'a>) -> Result<(), String> {
        let Some(language) = metadata.get("language_info") else { return Ok(()) };
        let language = object(language, "metadata.language_info")?;
        self.keep_only(&language, LANGUAGE_INFO, "métadonnée étrangère");
        for field in ["file_extension", "mimetype"] {
            self.only_text(&language, field);
        }
        let Some(name) = language.get("name") else { return Ok(()) };
        match json_text::text(name).as_deref() {
            Some("rust") => {}
            // The kernel's own spelling, which Jupyter writes at each run.
            Some("Rust") => {
                self.removable("metadata.language_info.name : \"Rust\", au lieu de \"rust\"".to_owned());
                self.edits.replace(name, "\"rust\"");
            }
            _ => self.lasting(format!("langage : {}, au lieu de \"rust\"", one_line(name, SHOWN))),
        }
        Ok(())
    }

    fn cells(&mut self, cells: &[Object<'a>]) -> Result<(), String> {
        let ids: Vec<_> = cells.iter().map(|cell| cell.get("id").and_then(json_text::text)).collect();
        for (index, cell) in cells.iter().enumerate() {
            let id = ids[index].as_deref().filter(|id| is_id(id));
            let bearers = ids.iter().filter(|other| other.as_deref() == id).count();
            self.place = match id {
                Some(id) if bearers == 1 => format!("cellule {id}"),
                _ => format!("cellule n° {}", index + 1),
            };
            self.id(cell.get("id"), &ids[..index]);
            self.cell(cell)?;
        }
        Ok(())
    }

    fn id(&mut self, id: Option<&str>, earlier: &[Option<String>]) {
        let Some(value) = id else { return self.lasting("id absent".to_owned()) };
        let text = json_text::text(value);
        match text.as_deref() {
            Some("") => self.lasting("id vide".to_owned()),
            Some(id) if is_id(id) => {
                if let Some(first) = earlier.iter().position(|other| other.as_deref() == Some(id)) {
                    self.lasting(format!("id {id} déjà porté par la cellule n° {}", first + 1));
                }
            }
            _ => self.lasting(format!(
                "id invalide : {} (1 à 64 caractères, lettres sans accent, chiffres, « - » et « _ »)",
                one_line(value, SHOWN)
            )),
        }
    }

    fn cell(&mut self, cell: &Object<'a>) -> Result<(), String> {
        let kind = cell.get("cell_type").and_then(json_text::text).unwrap_or_default();
        let is_code = kind == "code";
        if !["code", "markdown", "raw"].contains(&kind.as_str()) {
            self.lasting(format!("type de cellule inconnu : « {} »", one_line(&kind, SHOWN)));
        }
        self.cell_fields(cell, if is_code { CODE_CELL_FIELDS } else { TEXT_CELL_FIELDS });
        if is_code {
            self.outputs(cell.get("outputs"));
            self.execution_count(cell.get("execution_count"));
        }
        let metadata = cell.get("metadata").map(|value| object(value, "metadata d'une cellule")).transpose()?;
        if let Some(metadata) = &metadata {
            self.keep_only(metadata, CELL_METADATA, "métadonnée étrangère");
        }
        self.tags(metadata.and_then(|metadata| metadata.get("tags")), is_code);
        Ok(())
    }

    /// Removes what is no field of such a cell, and attachments that its source never shows.
    fn cell_fields(&mut self, cell: &Object<'a>, fields: &[&str]) {
        let source = cell.get("source").and_then(source_text);
        if source.is_none() {
            self.lasting("texte (source) absent ou illisible".to_owned());
        }
        let shows_attachments = source.is_none_or(|source| source.to_lowercase().contains("attachment:"));
        let has_attachments = fields.contains(&"attachments") && cell.get("attachments").is_some();
        if has_attachments && shows_attachments {
            self.lasting("pièces jointes, que le texte de la cellule montre".to_owned());
        } else if has_attachments {
            self.removable("pièces jointes".to_owned());
        }
        let strange = |member: &Member<'a>| !fields.contains(&member.name.as_str());
        self.name_each(cell, strange, "champ étranger");
        self.edits
            .remove_members(cell, |member| strange(member) || (member.name == "attachments" && !shows_attachments));
    }

    fn outputs(&mut self, outputs: Option<&'a str>) {
        let Some(value) = outputs else { return self.lasting("liste des sorties (outputs) absente".to_owned()) };
        match json_text::items(value).map(|items| items.len()) {
            Some(0) => return,
            Some(1) => self.removable("1 sortie enregistrée".to_owned()),
            Some(count) => self.removable(format!("{count} sorties enregistrées")),
            None => self.removable("sorties illisibles".to_owned()),
        }
        self.edits.replace(value, "[]");
    }

    fn execution_count(&mut self, count: Option<&'a str>) {
        match count {
            Some("null") => {}
            Some(value) => {
                self.removable(format!("compteur d'exécution (execution_count) : {}", one_line(value, SHOWN)));
                self.edits.replace(value, "null");
            }
            None => self.lasting("compteur d'exécution (execution_count) absent".to_owned()),
        }
    }

    fn tags(&mut self, tags: Option<&str>, is_code: bool) {
        let Some(value) = tags else { return self.lasting("étiquettes (metadata.tags) absentes".to_owned()) };
        let Ok(tags) = serde_json::from_str::<Vec<String>>(value) else {
            return self.lasting(format!("étiquettes illisibles : {}", one_line(value, SHOWN)));
        };
        for (index, tag) in tags.iter().enumerate() {
            let shown = one_line(tag, SHOWN);
            if tags[..index].contains(tag) {
                self.lasting(format!("étiquette répétée : « {shown} »"));
            } else if ![PLACE_TAGS, OTHER_TAGS].concat().contains(&tag.as_str()) {
                self.lasting(format!("étiquette inconnue : « {shown} »"));
            }
        }
        if is_code && !tags.iter().any(|tag| PLACE_TAGS.contains(&tag.as_str())) {
            self.lasting(format!("aucune des étiquettes {}", PLACE_TAGS.join(", ")));
        }
    }

    /// Names and removes the members of `object` that are not among `names`.
    fn keep_only(&mut self, object: &Object<'a>, names: &[&str], what: &str) {
        let strange = |member: &Member<'a>| !names.contains(&member.name.as_str());
        self.name_each(object, strange, what);
        self.edits.remove_members(object, strange);
    }

    fn name_each(&mut self, object: &Object<'a>, strange: impl Fn(&Member<'a>) -> bool, what: &str) {
        for member in object.members.iter().filter(|member| strange(member)) {
            self.removable(format!("{what} : « {} »", one_line(&member.name, SHOWN)));
        }
    }

    /// Where a text is expected, no structure may hide.
    fn only_text(&mut self, object: &Object<'a>, field: &str) {
        if object.get(field).is_some_and(|value| json_text::text(value).is_none()) {
            self.lasting(format!("métadonnée {field} : un texte est attendu"));
        }
    }

    fn removable(&mut self, what: String) {
        self.faults.push(Fault { place: self.place.clone(), what, removable: true });
    }

    fn lasting(&mut self, what: String) {
        self.faults.push(Fault { place: self.place.clone(), what, removable: false });
    }
}

/// An object in which every name counts once, so that nothing is overlooked.
fn object<'a>(value: &'a str, what: &str) -> Result<Object<'a>, String> {
    let object = Object::parse(value).ok_or_else(|| format!("{what} n'est pas un objet JSON lisible"))?;
    match object.repeated_name() {
        Some(name) => Err(format!("{what} porte deux fois le nom « {} »", one_line(name, SHOWN))),
        None => Ok(object),
    }
}

/// nbformat stores a source whole or in lines.
fn source_text(value: &str) -> Option<String> {
    json_text::text(value).or_else(|| serde_json::from_str::<Vec<String>>(value).ok().map(|lines| lines.concat()))
}

/// As nbformat 4.5 has it.
fn is_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=64).contains(&id.len()) && id.chars().all(allowed)
}
