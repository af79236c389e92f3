use super::*;

fn image(number: i64) -> Digest {
    format!("sha256:{number:064x}").parse().expect("a digest")
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(minute * 60).expect("a time")
}

#[test]
fn b1_a_tag_that_always_names_another_image_starts_fewer_and_fewer_builds() {
    let mut pace = Pace::default();
    // It is asked every ten minutes, for a week, and has moved each time.
    let week = (0..7 * 24 * 6).map(|look| 10 * look);
    let mut built: Vec<i64> = Vec::new();
    for minute in week {
        let followed = pace.follow(&image(minute), Some(image(-1)), false, at(minute));
        if followed.digest == image(minute) {
            built.push(minute);
        } else {
            assert!(followed.until.is_some_and(|until| until > at(minute)));
        }
    }
    assert_eq!(built[..6], [0, 60, 180, 420, 900, 1380], "after 1, 2, 4, and then each 8 hours");
    assert!(built.windows(2).skip(4).all(|pair| pair[1] - pair[0] == 480), "{built:?}");
}

#[test]
fn b1_a_tag_that_moves_now_and_then_is_followed_at_once() {
    let mut pace = Pace::default();
    let mut follow =
        |number: i64, minute: i64| pace.follow(&image(number), Some(image(1)), false, at(minute));
    assert_eq!(follow(1, 0), Followed { digest: image(1), until: None });
    assert_eq!(follow(2, 10).digest, image(2), "the first one that is another one");
    for minute in [20, 69] {
        let held = follow(3, minute);
        assert_eq!((held.digest.clone(), held.until), (image(2), Some(at(70))));
        let why = held.why().expect("a reason");
        assert!(why.contains("1970-01-01T01:10:00Z"), "{why}");
    }
    // Back to what is built on: there is nothing to tell.
    assert_eq!(follow(2, 69), Followed { digest: image(2), until: None });
    assert_eq!(follow(3, 70), Followed { digest: image(3), until: None });
    // Each day.
    for day in 1..5 {
        assert_eq!(follow(3 + day, day * 24 * 60).digest, image(3 + day));
        assert_eq!(follow(3 + day, day * 24 * 60 + 10).why(), None);
    }
}

#[test]
fn b1_who_asks_for_a_build_gets_the_newest_base_image() {
    let mut pace = Pace::default();
    assert_eq!(pace.used(), None);
    // Nothing is known of before.
    assert_eq!(pace.follow(&image(1), None, false, at(0)).digest, image(1));
    assert_eq!(pace.follow(&image(2), None, false, at(1)).digest, image(2));
    assert_eq!(pace.follow(&image(3), None, false, at(2)).digest, image(2));
    assert_eq!(pace.used(), Some(&image(2)));
    assert_eq!(pace.follow(&image(3), None, true, at(3)).digest, image(3));
    assert_eq!(
        pace.follow(&image(3), None, false, at(4)),
        Followed { digest: image(3), until: None }
    );
    // That was a move, too.
    let held = pace.follow(&image(4), None, false, at(5));
    assert_eq!((held.digest, held.until), (image(3), Some(at(123))));
}
