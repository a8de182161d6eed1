//! Projection: items with only some of their fields. Named fields are copied, the rest is skipped.

use std::ops::Range;

use crate::error::{Error, Result, quote};
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::{Pointer, unescape};
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Maximum number of keys in a field's path.
const MAX_SEGMENTS: usize = 64;

/// Maximum number of nested arrays on the way to a field.
const MAX_ARRAYS: usize = 128;

/// Fields merged into a tree, each level sorted by key. A leaf selects the whole value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields(Vec<(String, Fields)>);

/// Returns the items of an array, an object or NDJSON with the named fields only.
///
/// A field is a path of keys joined by dots; `\.` is a dot in a key, `\\` a backslash. A field that starts
/// with a slash matches both as a JSON Pointer and as a key of exactly this spelling. Arrays on the way are
/// mapped over. Fields that an item lacks are left out; an item that is not an object becomes `null`. Keys
/// keep the payload's order; of equal keys the first one counts.
pub fn project<S: AsRef<str>>(data: &[u8], fields: &[S]) -> Result<Vec<u8>> {
    Ok(project_with(Isa::detect(), data, &Fields::parse(fields)?)?.out)
}

/// Whether any item has any of the fields. If not, [`project`] returns only empty containers and nulls.
pub fn has_fields<S: AsRef<str>>(data: &[u8], fields: &[S]) -> Result<bool> {
    Ok(project_with(Isa::detect(), data, &Fields::parse(fields)?)?.has_any)
}

fn project_with<'a>(isa: Isa, data: &'a [u8], fields: &Fields) -> Result<Projection<'a>> {
    let mut projection = Projection { data, out: Vec::new(), has_any: false, found: Vec::new() };
    let mut reader = Reader::new(data, isa);
    projection.write_item(&mut reader, fields, 0)?;
    if !is_first_line(&mut reader, data, isa)? {
        return Ok(projection);
    }
    projection.out.clear();
    for line in lines(data) {
        let mut reader = Reader::at(&data[..line.end], line.start, isa);
        projection.write_item(&mut reader, fields, 0)?;
        expect_end(&mut reader)?;
        projection.out.push(b'\n');
    }
    Ok(projection)
}

impl Fields {
    fn parse<S: AsRef<str>>(fields: &[S]) -> Result<Self> {
        if fields.is_empty() {
            return Err(Error::argument("no fields named; name at least one, e.g. \"id\" or \"user.name\""));
        }
        let mut root = Self::default();
        for field in fields {
            for path in paths(field.as_ref())? {
                root.insert(path);
            }
        }
        Ok(root)
    }

    /// Adds a path. A path above another one selects everything that the deeper one would.
    fn insert(&mut self, path: Vec<String>) {
        let mut node = self;
        let last = path.len().saturating_sub(1);
        for (i, key) in path.into_iter().enumerate() {
            let (at, is_new) = match node.position(key.as_bytes()) {
                Ok(at) => (at, false),
                Err(at) => {
                    node.0.insert(at, (key, Self::default()));
                    (at, true)
                }
            };
            node = &mut node.0[at].1;
            if i == last {
                node.0.clear();
            } else if !is_new && node.is_leaf() {
                return;
            }
        }
    }

    fn position(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.as_bytes().cmp(key))
    }

    fn find(&self, raw_key: &[u8]) -> Option<usize> {
        match memchr::memchr(b'\\', raw_key) {
            None => self.position(raw_key).ok(),
            Some(_) => self.position(unescape(raw_key)?.as_bytes()).ok(),
        }
    }

    fn is_leaf(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the key paths that a field may stand for.
pub(crate) fn paths(field: &str) -> Result<Vec<Vec<String>>> {
    let reject = |reason| Error::argument(format!("field {} {reason}", quote(field)));
    let paths = if field.starts_with('/') {
        let pointer = Pointer::parse(field).map_err(|_| {
            reject("is no JSON Pointer; write \"/user/name\" or \"user.name\", with ~1 for a slash and ~0 for a tilde in a key")
        })?;
        vec![vec![field.to_owned()], pointer.tokens().iter().map(|token| token.key().to_owned()).collect()]
    } else {
        vec![split(field)?]
    };
    if paths.iter().any(|path| path.len() > MAX_SEGMENTS) {
        return Err(reject(
            "goes down more than 64 keys; name one at most 64 keys deep, which takes all below it",
        ));
    }
    Ok(paths)
}

/// Splits a dotted path into its keys.
fn split(field: &str) -> Result<Vec<String>> {
    let reject = |reason, hint| Err(Error::argument(format!("field {} {reason}; {hint}", quote(field))));
    let syntax = "write keys joined by dots: \"user.name\"";
    let mut path = vec![String::new()];
    let mut chars = field.chars();
    while let Some(char) = chars.next() {
        let literal = match char {
            '.' => {
                path.push(String::new());
                continue;
            }
            '\\' => match chars.next() {
                Some(escaped @ ('.' | '\\')) => escaped,
                _ => return reject("has a backslash that is not followed by a dot or a backslash", syntax),
            },
            char => char,
        };
        if let Some(key) = path.last_mut() {
            key.push(literal);
        }
    }
    if path.iter().any(String::is_empty) {
        return reject("has an empty key", syntax);
    }
    Ok(path)
}

struct Projection<'a> {
    data: &'a [u8],
    out: Vec<u8>,
    has_any: bool,
    /// Which fields of the objects being read were found: a stack with one run of flags per level.
    found: Vec<bool>,
}

impl Projection<'_> {
    fn write_item(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
        match reader.kind()? {
            Kind::Object => self.write_object(reader, fields, arrays),
            Kind::Array => self.write_array(reader, fields, arrays + 1),
            _ => {
                reader.skip()?;
                self.out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }

    fn write_array(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
        if arrays > MAX_ARRAYS {
            return Err(reader.fail("arrays nested too deeply to project"));
        }
        reader.open();
        self.out.push(b'[');
        let mut is_first = true;
        while reader.next_item(is_first)? {
            if !is_first {
                self.out.push(b',');
            }
            is_first = false;
            self.write_item(reader, fields, arrays)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn write_object(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
        reader.open();
        self.out.push(b'{');
        let level = self.found.len();
        self.found.resize(level + fields.0.len(), false);
        let mut missing = fields.0.len();
        let (mut is_first, mut is_empty) = (true, true);
        while let Some(key) = reader.next_key(is_first)? {
            is_first = false;
            let field = fields.find(&self.data[key.clone()]).filter(|at| !self.found[level + at]);
            let Some(at) = field else {
                reader.skip()?;
                continue;
            };
            self.found[level + at] = true;
            missing -= 1;
            is_empty &= !self.write_member(reader, key, &fields.0[at].1, is_empty, arrays)?;
            if missing == 0 {
                reader.skip_rest()?;
                break;
            }
        }
        self.found.truncate(level);
        self.out.push(b'}');
        Ok(())
    }

    /// Writes a key and the selected part of its value. Returns `false` and writes nothing if the path
    /// continues but the value is a scalar.
    fn write_member(
        &mut self,
        reader: &mut Reader<'_>,
        key: Range<usize>,
        fields: &Fields,
        is_first: bool,
        arrays: usize,
    ) -> Result<bool> {
        if !fields.is_leaf() && !matches!(reader.kind()?, Kind::Object | Kind::Array) {
            reader.skip()?;
            return Ok(false);
        }
        if !is_first {
            self.out.push(b',');
        }
        self.out.extend_from_slice(&self.data[key.start - 1..=key.end]);
        self.out.push(b':');
        if fields.is_leaf() {
            self.has_any = true;
            let span = reader.take_value()?;
            self.out.extend_from_slice(&self.data[span]);
        } else {
            self.write_item(reader, fields, arrays)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn run(data: &[u8], fields: &[&str]) -> Result<Vec<u8>> {
        let tree = Fields::parse(fields)?;
        let out: Vec<_> = Isa::available()
            .into_iter()
            .map(|isa| project_with(isa, data, &tree).map(|projection| projection.out))
            .collect();
        assert!(out.iter().all(|result| *result == out[0]), "{out:?}");
        project(data, fields)
    }

    fn text(data: &str, fields: &[&str]) -> String {
        String::from_utf8(run(data.as_bytes(), fields).unwrap()).unwrap()
    }

    /// Reference: projects parsed values path by path, without a field tree.
    fn naive(value: &Value, paths: &[Vec<&str>]) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| naive(item, paths)).collect(),
            Value::Object(members) => {
                let mut out = Map::new();
                for (key, member) in members {
                    let deeper: Vec<Vec<&str>> =
                        paths.iter().filter(|path| path[0] == key).map(|path| path[1..].to_vec()).collect();
                    if deeper.iter().any(Vec::is_empty) {
                        out.insert(key.clone(), member.clone());
                    } else if !deeper.is_empty() && (member.is_object() || member.is_array()) {
                        out.insert(key.clone(), naive(member, &deeper));
                    }
                }
                Value::Object(out)
            }
            _ => Value::Null,
        }
    }

    /// Values with few distinct keys, so that fields often match.
    fn items() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!("x,]}")), Just(Value::Null)];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("[abc]", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn fields() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[abc](\\.[abc]){0,3}", 1..5)
    }

    #[test]
    fn keeps_the_shape_of_the_selected_fields() {
        let data = r#" [ {"id": 1, "user": {"name": "A\u00e9", "age": 3}, "tags": [ {"t": 1, "u": 2}, 5, [ {"t": 3} ] ]},
            {"user": "none", "tags": [], "id": {"deep" : [1, 2]}}, 7, [], [{"id": 2}], null ] "#;
        assert_eq!(
            text(data, &["tags.t", "user.name", "id"]),
            r#"[{"id":1,"user":{"name":"A\u00e9"},"tags":[{"t":1},null,[{"t":3}]]},{"tags":[],"id":{"deep" : [1, 2]}},null,[],[{"id":2}],null]"#
        );
        assert_eq!(text(r#"{"a": 1, "b": 2}"#, &["b"]), r#"{"b":2}"#);
        assert_eq!(text("{\"a\": 1}\n\n5\n{\"b\": [ 2 ]}", &["b"]), "{}\nnull\n{\"b\":[ 2 ]}\n");
        assert_eq!(text("3", &["b"]), "null");
    }

    #[test]
    fn a_field_includes_deeper_fields() {
        let data = r#"{"user": {"name": "n", "x": {"y": 1}}}"#;
        let whole = r#"{"user":{"name": "n", "x": {"y": 1}}}"#;
        assert_eq!(text(data, &["user.name", "user", "user.x.y"]), whole);
        assert_eq!(text(data, &["user", "user.name"]), whole);
        assert_eq!(text(data, &["user.x", "user.x.y.z"]), r#"{"user":{"x":{"y": 1}}}"#);
    }

    #[test]
    fn the_first_of_equal_keys_counts() {
        let data = r#"{"a": 1, "\u0061": 2, "b": 3, "a": 4}"#;
        assert_eq!(text(data, &["a"]), r#"{"a":1}"#);
        assert_eq!(text(data, &["a", "b", "c"]), r#"{"a":1,"b":3}"#);
        assert_eq!(text(r#"{"a": 1, "a": {"b": 2}}"#, &["a.b"]), "{}");
    }

    #[test]
    fn a_backslash_escapes_a_dot() {
        assert_eq!(text(r#"{"a.b": 1, "a": {"b": 2}, "\\": 3}"#, &[r"a\.b", r"\\"]), r#"{"a.b":1,"\\":3}"#);
    }

    #[test]
    fn a_leading_slash_is_a_pointer_or_a_key() {
        let data = r#"{"user": {"name": 1, "age": 2}, "a/b": {"c.d": {"": 3}}, "/user/age": 4}"#;
        assert_eq!(text(data, &["/user/name"]), r#"{"user":{"name":1}}"#);
        assert_eq!(text(data, &["/a~1b/c.d/"]), r#"{"a/b":{"c.d":{"":3}}}"#);
        assert_eq!(text(data, &["/user/age"]), r#"{"user":{"age":2},"/user/age":4}"#);
        assert_eq!(text(r#"[{"tags": [{"t": 1}]}]"#, &["/tags/t"]), r#"[{"tags":[{"t":1}]}]"#);
    }

    #[test]
    fn has_fields_reports_any_match() {
        let data = br#"[1, {"a": {"b": null}}, {"a": {}, "c": [{"d": 1}]}]"#;
        for (fields, expected) in [
            (&["x"][..], false),
            (&["a"], true),
            (&["a.b"], true),
            (&["a.x", "c.a", "d"], false),
            (&["x", "c.d"], true),
            (&["/a/b"], true),
            (&["/c/0/d"], false),
        ] {
            assert_eq!(has_fields(data, fields).unwrap(), expected, "{fields:?}");
        }
        assert!(has_fields(b"{}\n{\"a\":1}", &["a"]).unwrap());
    }

    #[test]
    fn rejects_invalid_fields() {
        let deep = "a.".repeat(64) + "a";
        let deep_pointer = "/a".repeat(65);
        for field in ["", ".", "a..b", ".a", "a.", r"a\", r"a\b", "/a~2", &deep, &deep_pointer] {
            let error = run(b"{}", &[field]).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::InvalidArgument(_)), "{field}");
        }
        assert!(matches!(run(b"{}", &[]).unwrap_err().kind, ErrorKind::InvalidArgument(_)));
        assert!(run(b"{}", &[&deep[2..]]).is_ok());
    }

    #[test]
    fn errors_name_the_first_invalid_byte() {
        for (data, index) in [
            ("", 0),
            ("[1,]", 3),
            ("[{}] 1", 5),
            ("{\"a\":tru}", 5),
            ("{}\n{\"a\" 1}", 8),
            ("[1", 2),
            ("{\"a\":[1}}", 7),
        ] {
            let error = run(data.as_bytes(), &["a"]).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::InvalidJson(_)), "{error}");
            assert_eq!(error.index, index, "{data}");
        }
    }

    #[test]
    fn deeply_nested_arrays_are_an_error() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(text(&nested(MAX_ARRAYS), &["a"]), nested(MAX_ARRAYS));
        assert_eq!(run(nested(MAX_ARRAYS + 1).as_bytes(), &["a"]).unwrap_err().index, MAX_ARRAYS as u64);
        assert!(run("[".repeat(1_000_000).as_bytes(), &["a"]).is_err());
    }

    proptest! {
        #[test]
        fn matches_projecting_parsed_values(value in items(), fields in fields()) {
            let names: Vec<&str> = fields.iter().map(String::as_str).collect();
            let paths: Vec<Vec<&str>> = names.iter().map(|field| field.split('.').collect()).collect();
            for data in [serde_json::to_vec(&value).unwrap(), serde_json::to_vec_pretty(&value).unwrap()] {
                let out = run(&data, &names).unwrap();
                prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), naive(&value, &paths));
            }
        }

        #[test]
        fn lines_are_projected_like_items(values in prop::collection::vec(items(), 2..6), fields in fields()) {
            let names: Vec<&str> = fields.iter().map(String::as_str).collect();
            let mut lines: Vec<String> = values.iter().map(Value::to_string).collect();
            let array = run(format!("[{}]", lines.join(",")).as_bytes(), &names).unwrap();
            lines.insert(1, " \r".to_owned());
            let out = run(lines.join("\n").as_bytes(), &names).unwrap();
            let joined = String::from_utf8(out).unwrap().trim_end().replace('\n', ",");
            prop_assert_eq!(format!("[{joined}]").into_bytes(), array);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            value in items(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
            noise in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut data = serde_json::to_vec(&value).unwrap();
            let at = at.index(data.len());
            data[at] = byte;
            for data in [&data, &data[..at], &noise] {
                let _ = run(data, &["a.b", "b", "c.a"]);
            }
        }
    }
}
