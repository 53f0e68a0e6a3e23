//! The versions of symbols.
//!
//! `SUNW_1.2` and `SUNW_1.3` have the names the original has there, `SUNWprivate_1.1` what its
//! commands use, `LWP_1.0` what other documents name or this project adds. `pthread_create` has no
//! version, so that it takes the place of any.

use std::arch::global_asm;

/// `version!("V": a, b)` gives the symbols `a` and `b` the version `V`.
macro_rules! version {
    ($version:literal: $($name:ident),* $(,)?) => {
        $(global_asm!(concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@", $version));)*
    };
}

version!("SUNW_1.2":
    cpc_open,
    cpc_close,
    cpc_npic,
    cpc_caps,
    cpc_cciname,
    cpc_cpuref,
    cpc_seterrhndlr,
    cpc_set_create,
    cpc_set_destroy,
    cpc_set_add_request,
    cpc_buf_create,
    cpc_buf_destroy,
    cpc_bind_curlwp,
    cpc_bind_pctx,
    cpc_bind_cpu,
    cpc_request_preset,
    cpc_set_restart,
    cpc_unbind,
    cpc_set_sample,
    cpc_buf_sub,
    cpc_buf_add,
    cpc_buf_copy,
    cpc_buf_zero,
    cpc_buf_get,
    cpc_buf_set,
    cpc_buf_hrtime,
    cpc_buf_tick,
    cpc_walk_requests,
    cpc_walk_events_all,
    cpc_walk_events_pic,
    cpc_walk_attrs,
    cpc_enable,
    cpc_disable,
);
version!("SUNW_1.3":
    cpc_walk_generic_events_all,
    cpc_walk_generic_events_pic,
);
version!("SUNWprivate_1.1":
    cpc_terminate,
);
version!("LWP_1.0":
    cpc_smpl_npic,
    cpc_smpl_iname,
    cpc_walk_events_all_common,
    cpc_walk_events_pic_common,
    cpc_walk_attrs_common,
    cpc_walk_smpl_recitems,
    cpc_walk_smpl_recitems_req,
    cpc_buf_smpl_rec_count,
    cpc_buf_smpl_lost_count,
    cpc_buf_smpl_get_item,
    cpc_buf_smpl_get_record,
    cpc_set_request_preset,
    cpc_buf_sample,
    gethrtime,
    gethrvtime,
);
