//! The documentation has the same problem codes as the program.

use super::*;

#[test]
fn every_code_has_its_line_in_the_documentation() {
    let page = include_str!("../../../../docs/problems.md");
    let codes = [include_str!("../diagnostic.rs"), include_str!("../../sync/apply/problems.rs")]
        .map(|source| {
            source
                .split('"')
                .filter(|text| text.len() == 7 && text.starts_with("CVK0"))
                .collect::<Vec<_>>()
        });
    let codes = codes.concat();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("| {code} |")), "{code} is not in docs/problems.md");
    }
}

#[test]
fn the_table_of_codes_is_complete_and_says_what_the_documentation_says() {
    let page = include_str!("../../../../docs/problems.md");
    let lines: Vec<_> =
        page.lines().filter(|l| l.starts_with("| CVK0") && !l.starts_with("| CVK09")).collect();
    let rules: Vec<_> = RULES
        .iter()
        .map(|rule| {
            let severity = format!("{:?}", rule.severity).to_lowercase();
            format!("| {} | {severity} | {} |", rule.code, rule.meaning)
        })
        .collect();
    assert_eq!(rules, lines);
}
