// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type syncMetrics struct {
	Secrets *prometheus.GaugeVec
}

// States of objects that are referred to.
const (
	stateCopied   = "copied"
	stateMissing  = "missing"
	stateConflict = "conflict"
)

func newMetrics(f metrics.Factory) *syncMetrics {
	return &syncMetrics{
		Secrets: f.In("secretsync").GaugeVec("secrets", "Secrets and ConfigMaps that are referred to, by state: copied, missing (they do not exist) or conflict (the name of the copy is taken)", "state"),
	}
}
