use super::*;
use crate::test_rng::TestRng;

fn args(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The images as `LINE WORD` or `LINE WORD = IMAGE`, and what is unknown as `LINE WHY`.
fn read(text: &str, build_args: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let Bases { images, unknown } = Dockerfile::parse(text).bases(&args(build_args));
    let one = |Base { word, image, line }| {
        if word == image { format!("{line} {word}") } else { format!("{line} {word} = {image}") }
    };
    let why = |Unknown { line, why }| format!("{line} {why}");
    (images.into_iter().map(one).collect(), unknown.into_iter().map(why).collect())
}

#[track_caller]
fn check(text: &str, build_args: &[(&str, &str)], images: &[&str], unknown: &[&str]) {
    let (found, not) = read(text, build_args);
    assert_eq!((found, not), (owned(images), owned(unknown)), "{text}");
}

fn owned(all: &[&str]) -> Vec<String> {
    all.iter().map(|&one| one.to_owned()).collect()
}

#[test]
fn b1_the_images_of_all_stages_are_found_and_stages_are_none() {
    check("FROM python:3.13\n", &[], &["1 python:3.13"], &[]);
    let text = "# syntax=docker/dockerfile:1\n# a comment\n\nfrom --platform=$BUILDPLATFORM golang:1 as Build\n\
        RUN go build\nFROM build AS test\nFrom scratch\nFROM gcr.io/distroless/static\nCOPY --from=build /a /a\n\
        COPY --chown=1:1 --from=0 /a /b\nCOPY --from=busybox:1 /bin/sh /sh\nADD x y\n\
        RUN --mount=type=bind,from=alpine:3,target=/x --network=none ls\nRUN --mount=type=cache,target=/y ls\n";
    let images = ["4 golang:1", "8 gcr.io/distroless/static", "11 busybox:1", "13 alpine:3"];
    check(text, &[], &images, &[]);
    // One word is one image, and a digest does not move.
    check("FROM a:1\nFROM a:1\nFROM a@sha256:1\nFROM b:1@sha256:1\n", &[], &["1 a:1"], &[]);
    check("\u{feff}FROM a:1\r\nRUN x\r\n", &[], &["1 a:1"], &[]);
    check("", &[], &[], &[]);
}

#[test]
fn b1_variables_of_a_from_have_the_values_of_the_build() {
    let text = "ARG BASE=python\nARG V=3.13 FLAVOR\nARG IMAGE=\"$BASE:${V}\"\nFROM ${IMAGE}\nFROM $BASE:$V\n\
        FROM ${BASE}:${V}-${FLAVOR:-slim}\nFROM $BASE:1${FLAVOR:+-x}\nFROM ${NONE:-a:1}\nARG BASE=later\nFROM $BASE:1\n";
    let images = [
        "4 ${IMAGE} = python:3.13",
        "5 $BASE:$V = python:3.13",
        "6 ${BASE}:${V}-${FLAVOR:-slim} = python:3.13-slim",
        "7 $BASE:1${FLAVOR:+-x} = python:1",
        "8 ${NONE:-a:1} = a:1",
        "10 $BASE:1 = python:1",
    ];
    check(text, &[], &images, &[]);
    let images = [
        "4 ${IMAGE} = r.test/p:3.14",
        "5 $BASE:$V = r.test/p:3.14",
        "6 ${BASE}:${V}-${FLAVOR:-slim} = r.test/p:3.14-x",
        "7 $BASE:1${FLAVOR:+-x} = r.test/p:1-x",
        "8 ${NONE:-a:1} = a:1",
        "10 $BASE:1 = r.test/p:1",
    ];
    check(text, &[("BASE", "r.test/p"), ("V", "3.14"), ("FLAVOR", "x")], &images, &[]);
    // A variable may name a stage.
    check("ARG S=one\nFROM a:1 AS one\nFROM $S\n", &[], &["2 a:1"], &[]);
}

#[test]
fn b1_what_is_not_certain_is_told_with_its_line() {
    for (text, unknown) in [
        ("ARG B\nFROM $B\n", "2 $B: B has no value"),
        ("FROM $B:1\n", "1 $B:1: B has no value"),
        ("FROM $GIVEN\n", "1 $GIVEN: GIVEN is a build argument, and no ARG before the first FROM"),
        ("ARG A=1\nARG A=2\nFROM a:$A\n", "3 a:$A: A is declared twice"),
        ("FROM a:$TARGETARCH\n", "1 a:$TARGETARCH: TARGETARCH follows from the node"),
        (
            "ARG TARGETARCH=x\nFROM a:$TARGETARCH\n",
            "2 a:$TARGETARCH: TARGETARCH follows from the node",
        ),
        ("FROM a:${B-1}\n", "1 a:${B-1}: ${B-1} is not understood"),
        ("FROM ${B:-${C}}\n", "1 ${B:-${C}}: a variable cannot be read here"),
        ("FROM ${B\n", "1 ${B: a brace does not end"),
        ("FROM a:$$\n", "1 a:$$: a $ without a name"),
        ("FROM \"a:1\"\n", "1 \"a:1\": quotes cannot be read here"),
        ("FROM a:1 AS\n", "1 this FROM is not understood"),
        ("FROM\n", "1 this FROM is not understood"),
        (
            "FROM a=b:1\n",
            "1 a=b:1: the name has characters with which it cannot be named to the build",
        ),
        ("ARG A=\"\"\nFROM $A\n", "2 $A: this is no name of an image"),
        ("ARG A='$B'\nFROM $A\n", "2 $A: A has no clear default: a variable cannot be read here"),
        ("ARG A=\"\nFROM a\n", "1 this ARG is not understood"),
        // The name of a stage would be taken for the image.
        (
            "FROM b AS a\nCOPY --from=b x y\nFROM c@sha256:1 AS b\n",
            "1 b: a stage has the same name",
        ),
        ("FROM scratch\nCOPY --from=x-$V a b\n", "2 x-$V: a variable cannot be read here"),
        ("# escape=`\nFROM a\n", "1 files with another escape character are not read"),
        ("FROM scratch\nRUN x \\\\\nFROM a\n", "2 a line that ends in two backslashes is not read"),
    ] {
        let (_, found) = read(text, &[("GIVEN", "a:1")]);
        assert_eq!(found.first().map(String::as_str), Some(unknown), "{text}");
    }
    let many: Vec<_> = (0..=MAX_IMAGES).map(|n| format!("FROM a:{n}\n")).collect();
    let (images, unknown) = read(&many.concat(), &[]);
    assert_eq!(images.len(), MAX_IMAGES);
    assert_eq!(unknown, ["9 a:8: no more than 8 images are followed"]);
    let (_, unknown) = read(&"FROM scratch\n".repeat(MAX_KEPT), &[]);
    assert_eq!(unknown, ["129 more instructions follow than are read"]);
    check(
        &format!("FROM {}\n", "a".repeat(MAX_NAME + 1)),
        &[],
        &[],
        &["1 the name of an image is too long"],
    );
}

#[test]
fn b1_text_that_looks_like_a_from_is_none() {
    let text = "ARG A=1 \\\n  # FROM no:1\n\n  B=2\nFROM \\\n  a:$A$B \\ \n  AS x\nRUN echo \\\nFROM no:2\n\
        RUN <<EOF cat <<-\"END\" && cat\nFROM no:3\n  EOF\nEOF\nFROM no:4\n\tEND\nCOPY <<'F' /x\nFROM no:5\nF\n\
        RUN echo \"a <<EOF b\" $((1<<2)) <<<x\nLABEL a=\"\\\nFROM no:6\"\nONBUILD COPY --from=no:7 a b\nFROM b:1\n";
    check(text, &[], &["5 a:$A$B = a:12", "23 b:1"], &[]);
    check("FROM a:1\nRUN <<EOF\nFROM no:1\n", &[], &["1 a:1"], &["2 a heredoc does not end"]);
    check(
        "FROM a:1\nRUN <<EOF 'x\nFROM no:1\n",
        &[],
        &["1 a:1"],
        &["2 the quotes of this instruction do not end"],
    );
    // Only the first lines can be directives.
    check("# x\n# escape=`\nFROM a:1\n", &[], &["3 a:1"], &[]);
    check("# escape=\\\nFROM a:1\n", &[], &["2 a:1"], &[]);
}

/// Whatever the text: nothing panics, a word is in the line that it is told to be in or in one that continues it, and a name is safe to
/// hand on.
#[test]
fn b1_any_text_is_read() {
    const PIECES: [&str; 40] = [
        "FROM ",
        "from ",
        "ARG ",
        "COPY --from=",
        "RUN ",
        "RUN --mount=type=bind,from=",
        "ADD ",
        " AS ",
        "--platform=$X ",
        "\n",
        "\n",
        "\n",
        "\n",
        "\\\n",
        "\\",
        "<<EOF",
        "EOF\n",
        "<<-",
        "# escape=`",
        "#",
        "\"",
        "'",
        "$",
        "${",
        "}",
        ":-",
        ":+",
        "A",
        "B=",
        "=",
        "a:1",
        "r.test:5000/b",
        "@sha256:0",
        "scratch",
        "é",
        "\u{0}",
        " ",
        "\t",
        "0",
        "$(x)",
    ];
    let mut found = 0;
    for case in 0..20_000 {
        let mut rng = TestRng::new(case);
        let text: String = (0..rng.roll(40)).map(|_| rng.of(&PIECES)).collect();
        let Bases { images, unknown } =
            Dockerfile::parse(&text).bases(&args(&[("A", "x"), ("B", "y:1")]));
        let lines = text.lines().count();
        assert!(unknown.iter().all(|one| (1..=lines).contains(&one.line)), "{text:?}");
        for Base { word, image, line } in &images {
            assert!((1..=lines).contains(line), "{text:?}");
            assert!(
                text.replace("\\\n", "").contains(word.as_str()) || text.contains('\\'),
                "{text:?}"
            );
            for one in [word, image] {
                assert!(
                    !one.is_empty() && !one.contains(['(', '=', '"', '\'', '\\', ' ', '\0', '@']),
                    "{text:?}"
                );
            }
            assert!(
                !image.contains('$') && image != SCRATCH
                    || word.contains('-')
                    || !word.contains('$'),
                "{text:?}"
            );
            found += 1;
        }
    }
    assert!(found > 1_000, "only {found} images");
}
