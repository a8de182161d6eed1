//! Items with a few of their fields: what is asked for is copied, the rest is passed over.

use std::ops::Range;

use crate::error::{Error, Result, quoted};
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::{Pointer, unescape};
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// How many keys a field may go down.
const MAX_SEGMENTS: usize = 64;

/// How many arrays may stand one inside the other on the way to a field.
const MAX_ARRAYS: usize = 128;

/// Fields merged into a tree, each level sorted by key. A leaf takes everything.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields(Vec<(String, Fields)>);

/// The items of an array, an object or NDJSON, with the named fields only.
///
/// A field is a path of keys joined by dots; `\.` is a dot in a key, `\\` a backslash. One that begins with a slash is
/// a JSON Pointer, or a key that is written just so. Arrays on the way are mapped through. What an item does not have
/// is left out, an item that is no object becomes `null`. Keys keep the order of the payload; of equal keys the first
/// is meant.
pub fn project<S: AsRef<str>>(data: &[u8], fields: &[S]) -> Result<Vec<u8>> {
    Ok(project_with(Isa::detect(), data, &Fields::parse(fields)?)?.out)
}

/// Whether any item has any of the fields: if not, what `project` gives is empty shapes.
pub fn has_fields<S: AsRef<str>>(data: &[u8], fields: &[S]) -> Result<bool> {
    Ok(project_with(Isa::detect(), data, &Fields::parse(fields)?)?.has_any)
}

fn project_with<'a>(isa: Isa, data: &'a [u8], fields: &Fields) -> Result<Projection<'a>> {
    let mut projection = Projection { data, out: Vec::new(), has_any: false, found: Vec::new() };
    let mut reader = Reader::new(data, isa);
    projection.item(&mut reader, fields, 0)?;
    if !is_first_line(&mut reader, data, isa)? {
        return Ok(projection);
    }
    projection.out.clear();
    for line in lines(data) {
        let mut reader = Reader::at(&data[..line.end], line.start, isa);
        projection.item(&mut reader, fields, 0)?;
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

    /// A field above another takes all that the other one would.
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

/// The paths that a field may mean.
fn paths(field: &str) -> Result<Vec<Vec<String>>> {
    let refuse = |why| Error::argument(format!("field {} {why}", quoted(field)));
    let paths = if field.starts_with('/') {
        let pointer = Pointer::parse(field).map_err(|_| {
            refuse("is no JSON Pointer; write \"/user/name\" or \"user.name\", with ~1 for a slash and ~0 for a tilde in a key")
        })?;
        vec![vec![field.to_owned()], pointer.tokens().iter().map(|token| token.key().to_owned()).collect()]
    } else {
        vec![split(field)?]
    };
    if paths.iter().any(|path| path.len() > MAX_SEGMENTS) {
        return Err(refuse(
            "goes down more than 64 keys; name one at most 64 keys deep, which takes all below it",
        ));
    }
    Ok(paths)
}

/// The keys of a path that is written with dots.
fn split(field: &str) -> Result<Vec<String>> {
    let refuse = |why, hint| Err(Error::argument(format!("field {} {why}; {hint}", quoted(field))));
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
                _ => return refuse("has a backslash that is not followed by a dot or a backslash", syntax),
            },
            char => char,
        };
        if let Some(key) = path.last_mut() {
            key.push(literal);
        }
    }
    if path.iter().any(String::is_empty) {
        return refuse("has an empty key", syntax);
    }
    Ok(path)
}

struct Projection<'a> {
    data: &'a [u8],
    out: Vec<u8>,
    has_any: bool,
    /// Which fields of the objects being read were found: a stack, one run a level.
    found: Vec<bool>,
}

impl Projection<'_> {
    fn item(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
        match reader.kind()? {
            Kind::Object => self.object(reader, fields, arrays),
            Kind::Array => self.array(reader, fields, arrays + 1),
            _ => {
                reader.skip()?;
                self.out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }

    fn array(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
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
            self.item(reader, fields, arrays)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, reader: &mut Reader<'_>, fields: &Fields, arrays: usize) -> Result<()> {
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
            is_empty &= !self.member(reader, key, &fields.0[at].1, is_empty, arrays)?;
            if missing == 0 {
                reader.skip_rest()?;
                break;
            }
        }
        self.found.truncate(level);
        self.out.push(b'}');
        Ok(())
    }

    /// Writes a key and what is asked of its value; `false`, and nothing, where the path goes on but the
    /// value does not.
    fn member(
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
            let span = reader.value()?;
            self.out.extend_from_slice(&self.data[span]);
        } else {
            self.item(reader, fields, arrays)?;
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
        let parsed = Fields::parse(fields)?;
        let out: Vec<_> = Isa::available()
            .into_iter()
            .map(|isa| project_with(isa, data, &parsed).map(|one| one.out))
            .collect();
        assert!(out.iter().all(|one| *one == out[0]), "{out:?}");
        project(data, fields)
    }

    fn text(data: &str, fields: &[&str]) -> String {
        String::from_utf8(run(data.as_bytes(), fields).unwrap()).unwrap()
    }

    /// Field by field over parsed values, without a tree of fields.
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

    /// Values whose keys are few, so that fields find them.
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
    fn keeps_the_shape_of_what_is_asked() {
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
    fn a_field_above_wins() {
        let data = r#"{"user": {"name": "n", "x": {"y": 1}}}"#;
        let whole = r#"{"user":{"name": "n", "x": {"y": 1}}}"#;
        assert_eq!(text(data, &["user.name", "user", "user.x.y"]), whole);
        assert_eq!(text(data, &["user", "user.name"]), whole);
        assert_eq!(text(data, &["user.x", "user.x.y.z"]), r#"{"user":{"x":{"y": 1}}}"#);
    }

    #[test]
    fn the_first_of_equal_keys_is_meant() {
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
    fn a_slash_begins_a_pointer_or_a_key() {
        let data = r#"{"user": {"name": 1, "age": 2}, "a/b": {"c.d": {"": 3}}, "/user/age": 4}"#;
        assert_eq!(text(data, &["/user/name"]), r#"{"user":{"name":1}}"#);
        assert_eq!(text(data, &["/a~1b/c.d/"]), r#"{"a/b":{"c.d":{"":3}}}"#);
        assert_eq!(text(data, &["/user/age"]), r#"{"user":{"age":2},"/user/age":4}"#);
        assert_eq!(text(r#"[{"tags": [{"t": 1}]}]"#, &["/tags/t"]), r#"[{"tags":[{"t":1}]}]"#);
    }

    #[test]
    fn knows_whether_anything_was_found() {
        let data = br#"[1, {"a": {"b": null}}, {"a": {}, "c": [{"d": 1}]}]"#;
        for (fields, is_there) in [
            (&["x"][..], false),
            (&["a"], true),
            (&["a.b"], true),
            (&["a.x", "c.a", "d"], false),
            (&["x", "c.d"], true),
            (&["/a/b"], true),
            (&["/c/0/d"], false),
        ] {
            assert_eq!(has_fields(data, fields).unwrap(), is_there, "{fields:?}");
        }
        assert!(has_fields(b"{}\n{\"a\":1}", &["a"]).unwrap());
    }

    #[test]
    fn refuses_what_is_no_field() {
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
    fn says_where_json_ends() {
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
    fn deep_arrays_end_in_an_error() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(text(&nested(MAX_ARRAYS), &["a"]), nested(MAX_ARRAYS));
        assert_eq!(run(nested(MAX_ARRAYS + 1).as_bytes(), &["a"]).unwrap_err().index, MAX_ARRAYS as u64);
        assert!(run("[".repeat(1_000_000).as_bytes(), &["a"]).is_err());
    }

    proptest! {
        #[test]
        fn projects_like_a_walk_over_values(value in items(), fields in fields()) {
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
        fn any_bytes_do_no_harm(
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
