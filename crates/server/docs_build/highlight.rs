//! Colours for the code examples of the documents: comments, strings, numbers, keywords, and the names of keys. One small
//! scanner for all languages, because the examples are short and a full highlighter would double the build time.
//! Must hold: the text of the result, without its tags, is the text that was given.

use super::markdown::escape;

struct Language {
    names: &'static [&'static str],
    /// What starts a comment that ends with the line.
    comment: &'static [&'static str],
    keywords: &'static [&'static str],
    /// What quotes a string.
    quotes: &'static [char],
    /// What follows the name of a key: `name = value`, `"name": value`.
    key_ends: Option<char>,
}

const LANGUAGES: &[Language] = &[
    Language {
        names: &["sh", "bash"],
        comment: &["#"],
        keywords: &["export", "if", "then", "else", "fi", "for", "do", "done", "while", "in", "cd", "exec"],
        quotes: &['"', '\''],
        key_ends: None,
    },
    Language {
        names: &["js", "ts", "html"],
        comment: &["//"],
        keywords: &[
            "import",
            "export",
            "from",
            "const",
            "let",
            "new",
            "await",
            "async",
            "function",
            "return",
            "if",
            "else",
            "for",
            "of",
            "in",
            "while",
            "break",
            "continue",
            "throw",
            "try",
            "catch",
            "finally",
            "class",
            "true",
            "false",
            "null",
            "undefined",
            "typeof",
        ],
        quotes: &['"', '\'', '`'],
        key_ends: None,
    },
    Language {
        names: &["python"],
        comment: &["#"],
        keywords: &[
            "import", "from", "def", "return", "if", "elif", "else", "for", "in", "while", "with", "as",
            "async", "await", "class", "try", "except", "raise", "not", "and", "or", "None", "True", "False",
            "lambda", "break", "continue", "pass",
        ],
        quotes: &['"', '\''],
        key_ends: None,
    },
    Language {
        names: &["rust"],
        comment: &["//"],
        keywords: &[
            "use", "let", "mut", "fn", "async", "await", "move", "if", "else", "for", "in", "while", "loop",
            "match", "return", "struct", "enum", "impl", "pub", "const", "static", "true", "false", "break",
            "continue", "Some", "None", "Ok", "Err",
        ],
        quotes: &['"'],
        key_ends: None,
    },
    Language {
        names: &["go"],
        comment: &["//"],
        keywords: &[
            "package", "import", "func", "return", "if", "else", "for", "range", "var", "const", "type",
            "struct", "map", "nil", "true", "false", "defer", "go",
        ],
        quotes: &['"', '`'],
        key_ends: None,
    },
    Language {
        names: &["php"],
        comment: &["//"],
        keywords: &["require", "use", "function", "return", "echo", "if", "else", "foreach", "as", "new"],
        quotes: &['"', '\''],
        key_ends: None,
    },
    Language {
        names: &["toml", "ini"],
        comment: &["#"],
        keywords: &["true", "false"],
        quotes: &['"'],
        key_ends: Some('='),
    },
    Language {
        names: &["yaml"],
        comment: &["#"],
        keywords: &["true", "false", "null"],
        quotes: &['"', '\''],
        key_ends: Some(':'),
    },
    Language {
        names: &["json"],
        comment: &[],
        keywords: &["true", "false", "null"],
        quotes: &['"'],
        key_ends: Some(':'),
    },
    Language {
        names: &["nginx", "haproxy", "caddyfile", "nats"],
        comment: &["#"],
        keywords: &[],
        quotes: &['"', '\''],
        key_ends: None,
    },
    Language {
        names: &["sql"],
        comment: &["--"],
        keywords: &[
            "CREATE",
            "ROLE",
            "LOGIN",
            "PASSWORD",
            "GRANT",
            "ON",
            "TO",
            "SELECT",
            "INSERT",
            "UPDATE",
            "DELETE",
            "SCHEMA",
            "DATABASE",
            "CONNECT",
            "USAGE",
            "ALTER",
            "DEFAULT",
            "PRIVILEGES",
            "FOR",
            "IN",
            "TABLES",
            "SEQUENCES",
            "AUTHORIZATION",
            "FROM",
            "WHERE",
        ],
        quotes: &['\''],
        key_ends: None,
    },
];

/// The code as HTML. An unknown language has no colours.
pub fn highlight(language: &str, code: &str) -> String {
    let Some(language) = LANGUAGES.iter().find(|known| known.names.contains(&language)) else {
        return escape(code);
    };
    let mut out = String::with_capacity(code.len() * 2);
    let mut rest = code;
    let mut previous = '\n';
    while let Some(next) = rest.chars().next() {
        let (class, length) = token(language, rest, previous);
        let (part, after) = rest.split_at(length.max(next.len_utf8()));
        match class {
            Some(class) => out.push_str(&format!("<span class=\"{class}\">{}</span>", escape(part))),
            None => out.push_str(&escape(part)),
        }
        previous = part.chars().next_back().unwrap_or(next);
        rest = after;
    }
    out
}

/// The class and the length of what the text begins with.
fn token(language: &Language, text: &str, previous: char) -> (Option<&'static str>, usize) {
    let Some(first) = text.chars().next() else { return (None, 0) };
    // A comment stands at the beginning of a line or after a space: `room#1` and `https://` are none.
    let apart = previous.is_whitespace() || "({;,".contains(previous);
    if apart && language.comment.iter().any(|start| text.starts_with(start)) {
        return (Some("hc"), text.find('\n').unwrap_or(text.len()));
    }
    if language.quotes.contains(&first) {
        let length = quoted(text, first);
        let is_key = language.key_ends.is_some_and(|end| text[length..].trim_start().starts_with(end));
        return (Some(if is_key { "hk" } else { "hs" }), length);
    }
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    if is_name(first) && !is_name(previous) {
        let length = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
        let (word, after) = text.split_at(length);
        if first.is_ascii_digit() {
            return (
                word.chars().all(|letter| letter.is_ascii_digit() || letter == '_').then_some("hn"),
                length,
            );
        }
        if language.key_ends.is_some_and(|end| after.trim_start_matches(' ').starts_with(end)) {
            return (Some("hk"), length);
        }
        return (language.keywords.contains(&word).then_some("hw"), length);
    }
    (None, first.len_utf8())
}

/// The length of a string with its quotes. One that does not end stops with its line, except for backquotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' if quote != '`' => return at,
            letter if letter == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}
