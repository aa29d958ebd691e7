//! One suite, every backend: stamped once a way to open a store.

mod failing;
mod histories;
mod suite;
mod verify;

use crate::support::bed::Bed;

macro_rules! stamp {
    ($($test:ident,)+) => {
        mod sqlite {
            $(#[test] fn $test() { super::suite::$test(&mut super::Bed::sqlite()); })+
        }
        mod sqlite_reopened {
            $(#[test] fn $test() { super::suite::$test(&mut super::Bed::sqlite_reopened()); })+
        }
    };
}

stamp! {
    a_device_nobody_knows_is_none,
    a_batch_is_stored_whole_and_read_back,
    every_field_of_a_record_reads_back,
    a_retry_is_a_duplicate_and_writes_nothing,
    one_batch_id_on_two_devices_is_two_batches,
    a_group_sees_its_own_uploads_in_order,
    the_state_never_moves_backwards,
    the_position_has_a_key_of_its_own,
    a_conflict_stands_beside_the_first,
    overlapping_batches_store_each_record_once,
    a_reused_batch_id_is_kept_as_evidence,
    a_reused_batch_id_may_be_let_in,
    identical_rubbish_is_one_entry_with_a_count,
    a_full_quarantine_refuses_more_and_keeps_what_it_has,
    an_epoch_opened_by_the_device_raises_a_guard,
    a_lifted_mark_lets_entries_count,
    a_lifted_entry_may_displace_the_position,
    devices_are_listed_in_pages_by_id,
    a_track_is_read_in_pages_by_key,
    a_track_is_narrowed_by_key_and_time,
    sparse_and_huge_seqs_are_found_again,
    large_records_make_short_pages,
    fleet_keys_are_remembered,
    a_body_that_names_no_device_is_kept,
}
