//! Temporary.
use crate::error::{Error, Result};
#[derive(Debug, Clone)]
pub struct Pointer {
    text: String,
    tokens: Vec<Token>,
}
#[derive(Debug, Clone)]
pub(crate) struct Token(String);
impl Pointer {
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self { text: String::new(), tokens: vec![] });
        }
        let rest = text.strip_prefix('/').ok_or_else(|| Error::argument("a path starts with /"))?;
        Ok(Self {
            text: text.to_owned(),
            tokens: rest.split('/').map(|t| Token(t.replace("~1", "/").replace("~0", "~"))).collect(),
        })
    }
}
impl Pointer {
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
impl Token {
    pub(crate) fn matches_key(&self, raw: &[u8]) -> bool {
        self.0.as_bytes() == raw
    }
    pub(crate) fn index(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}
pub(crate) fn push_token(pointer: &mut String, raw: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(raw) else { return false };
    pointer.push('/');
    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    true
}
