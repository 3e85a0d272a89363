#[test]
fn a_thousand_lines_have_two_thousand_words() {
    assert_eq!(words::count(1000), 2000);
}
