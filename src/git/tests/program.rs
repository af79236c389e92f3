use std::collections::BTreeMap;

use super::*;

fn of(data: &[(&str, &str)], url: &str) -> Files {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    let files = Credentials::of(&data.collect(), url).expect("credentials").files(url);
    files.expect("files")
}

#[test]
fn b5_git_gets_the_header_for_one_origin_and_follows_no_redirect() {
    let files =
        of(&[("username", "u"), ("password", "p\"\\")], "https://git.example.com:8443/a.git");
    assert_eq!(files.keys().copied().collect::<Vec<_>>(), [CONFIG]);
    assert_eq!(
        files[CONFIG].get(),
        "[http]\n\tfollowRedirects = false\n[http \"https://git.example.com:8443\"]\n\
         \textraHeader = \"Authorization: Basic dTpwIlw=\"\n"
    );
    assert!(!format!("{files:?}").contains("dTpwIlw"), "nothing is printed");
    assert_eq!(quoted("a\"b\\c").as_deref(), Ok("\"a\\\"b\\\\c\""));
    assert!(quoted("a\n[core]\n\tsshCommand = x").is_err());
}

#[test]
fn b5_git_gets_the_proxy_with_its_user() {
    let data = [("address", "http://proxy:3128"), ("username", "u"), ("password", "p@\"%")];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let proxy = Credentials::proxy_of(&BTreeMap::from(data)).expect("a proxy");
    let url = "https://git.example.com/a.git";
    let with = Credentials::default().with_proxy(proxy, url).expect("credentials");
    let config = with.files(url).expect("files")[CONFIG].get().clone();
    assert_eq!(
        config,
        "[http]\n\tfollowRedirects = false\n\tproxy = \"http://u:p%40%22%25@proxy:3128/\"\n"
    );
}
