// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// keyMetrics are about keys that are left alone. They are 0 where this process does not lead.
type keyMetrics struct {
	Skipped *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *keyMetrics {
	return &keyMetrics{
		Skipped: f.In("identity_gc_kvstore").GaugeVec("skipped_keys", "Keys below the identities and their users in the kvstore, as of the last garbage collection, that are not identities of this cluster, or cannot be decoded", "reason"),
	}
}

// The values of the label reason.
const (
	foreignNumber = "foreign-number"
	noNumber      = "no-number"
	badLabels     = "bad-labels"
	badUser       = "bad-user"
)
