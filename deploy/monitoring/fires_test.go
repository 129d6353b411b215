// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package monitoring

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// situations are an hour and more of samples, one a minute, in which an alert
// must fire at the end, and in which it must not. Two replicas, a and b, unless
// that is the point.
var situations = map[string]struct{ fires, silent []string }{
	"CiliumOperatorAbsent": {
		fires:  []string{`up{instance="a"} 1x100`},
		silent: []string{`cilium_operator_leader{instance="a"} 0x100`},
	},
	"CiliumOperatorNoLeader": {
		fires: []string{both("cilium_operator_leader", "0x100", "0x100"), both("cilium_operator_leader", "1x90 0x10", "0x100")},
		silent: []string{both("cilium_operator_leader", "1x100", "0x100"),
			both("cilium_operator_leader", "1x99 0", "0x99 1")}, // handed over
	},
	"CiliumOperatorTwoLeaders": {
		fires:  []string{both("cilium_operator_leader", "1x100", "1x100")},
		silent: []string{both("cilium_operator_leader", "1x100", "0x99 1")}, // scraped at different moments
	},
	"CiliumOperatorNoStandby": {
		fires:  []string{`cilium_operator_leader{instance="a"} 1x100`},
		silent: []string{both("cilium_operator_leader", "1x100", "0x100")},
	},
	"CiliumOperatorLosesLease": {
		fires:  []string{both("cilium_operator_leader_lost_total", "0+0.1x100", "0x100")},
		silent: []string{both("cilium_operator_leader_lost_total", "0x60 1x39", "0x100")},
	},
	"CiliumOperatorRestarts": {
		fires:  []string{both("cilium_operator_process_start_time_seconds", "100x60 200x10 300x10 400x20", "100x100")},
		silent: []string{both("cilium_operator_process_start_time_seconds", "100x60 200x40", "100x100")},
	},
	"CiliumOperatorMemoryPressure": {
		fires: []string{both("cilium_operator_process_resident_memory_bytes", "230e6x100", "100e6x100") + both("go_gc_gomemlimit_bytes", "235e6x100", "235e6x100")},
		silent: []string{
			both("cilium_operator_process_resident_memory_bytes", "120e6x100", "100e6x100") + both("go_gc_gomemlimit_bytes", "235e6x100", "235e6x100"),
			both("cilium_operator_process_resident_memory_bytes", "9e9x100", "9e9x100") + both("go_gc_gomemlimit_bytes", "9.223372036854776e18x100", "9.223372036854776e18x100"), // no limit is set
		},
	},
	"CiliumOperatorDegraded": {
		fires: []string{`cilium_hive_status{instance="a",status="degraded"} 1x100`},
		silent: []string{
			`cilium_hive_status{instance="a",status="ok"} 40x100`,
			`cilium_hive_status{instance="a",status="degraded"} 1x95 0x5`,
		},
	},
	"CiliumOperatorWritesFail": {
		fires: []string{requests("PUT", "500", "0+10x100") + requests("PUT", "200", "0+10x100"), requests("POST", "error", "0+1x100")},
		silent: []string{
			requests("PUT", "500", "0+1x100") + requests("PUT", "200", "0+100x100"),
			requests("PUT", "409", "0+50x100") + requests("PUT", "200", "0+10x100"), // conflicts are solved by trying again
			requests("GET", "500", "0+50x100") + requests("PUT", "200", "0+10x100"),
			requests("PUT", "200", "7x100"),
		},
	},
	"CiliumOperatorForbidden": {
		fires:  []string{requests("GET", "403", "0+1x100")},
		silent: []string{requests("GET", "403", "1x100") + requests("GET", "200", "0+9x100")},
	},
	"CiliumOperatorUnexplainedWrites": {
		fires: []string{
			`cilium_operator_k8s_client_writes_without_cause_total{instance="a",module="m"} 0x60 1x40`,
			`cilium_operator_kvstore_writes_without_cause_total{instance="a"} 0x60 1x40`,
		},
		silent: []string{both("cilium_operator_kvstore_writes_without_cause_total", "0x100", "0x100")},
	},
	"CiliumOperatorClusterPoolNearlyExhausted": {
		fires: []string{blocks("10.0.0.0/16", "IPv4", "10x100", "246x100"), blocks("10.0.0.0/16", "IPv4", "0x100", "256x100")},
		silent: []string{
			blocks("10.0.0.0/16", "IPv4", "200x100", "56x100"),
			blocks("10.0.0.0/16", "IPv4", "0x100", "256x100") + blocks("10.1.0.0/16", "IPv4", "256x100", "0x100"), // the second one is new
		},
	},
	"CiliumOperatorNodesWithoutPodCIDR": {
		fires:  []string{`cilium_operator_ipam_cluster_pool_nodes{instance="a",state="error"} 2x100`},
		silent: []string{`cilium_operator_ipam_cluster_pool_nodes{instance="a",state="allocated"} 5x100`, `cilium_operator_ipam_cluster_pool_nodes{instance="a",state="waiting"} 9x95 0x5`},
	},
	"CiliumOperatorDuplicatePodCIDR": {
		fires:  []string{both("cilium_operator_ipam_cluster_pool_duplicate_nodes", "2x100", "0x100")},
		silent: []string{both("cilium_operator_ipam_cluster_pool_duplicate_nodes", "0x100", "0x100")},
	},
	"CiliumOperatorSweepBraked": {
		fires:  []string{`cilium_operator_sweep_braked{instance="a",module="endpointgc.periodic"} 1x100`},
		silent: []string{`cilium_operator_sweep_braked{instance="a",module="endpointgc.periodic"} 0x100`},
	},
	"CiliumOperatorSweepsFail": {
		fires: []string{sweeps("fail", "0+1x100") + sweeps("success", "9x100")},
		silent: []string{
			sweeps("fail", "0+1x100") + sweeps("success", "0+0.2x100"),
			sweeps("fail", "3x100") + sweeps("success", "9x100"),
		},
	},
	"CiliumOperatorHeartbeatFails": {
		fires:  []string{heartbeat("0x100", "0x100"), heartbeat("0+60x90 5400x10", "0x100")},
		silent: []string{heartbeat("0+60x100", "0x100"), heartbeat("0+60x50 3000x50", "0x50 3060+60x50")}, // b took over
	},
	"CiliumOperatorKVStoreQuorum": {
		fires:  []string{`cilium_operator_kvstore_quorum_errors_total{instance="a",error="timeout"} 0+1x100`},
		silent: []string{`cilium_operator_kvstore_quorum_errors_total{instance="a",error="timeout"} 4x100`},
	},
	"CiliumOperatorKVStoreSyncFails": {
		fires:  []string{`cilium_operator_kvstore_sync_errors_total{instance="a",scope="s",source_cluster="c"} 0+1x100`},
		silent: []string{`cilium_operator_kvstore_sync_errors_total{instance="a",scope="s",source_cluster="c"} 2x100`},
	},
}

func both(metric, a, b string) string {
	return metric + `{instance="a"} ` + a + "\n" + metric + `{instance="b"} ` + b + "\n"
}

func heartbeat(a, b string) string {
	return both("cilium_operator_kvstore_heartbeat_last_success_timestamp_seconds", a, b)
}

func requests(method, code, values string) string {
	return `cilium_operator_k8s_client_request_duration_seconds_count{instance="a",module="m",method="` + method + `",code="` + code + `"} ` + values + "\n"
}

func blocks(cidr, family, free, used string) string {
	const metric = `cilium_operator_ipam_cluster_pool_blocks{instance="a",cidr="`
	return metric + cidr + `",family="` + family + `",state="free"} ` + free + "\n" + metric + cidr + `",family="` + family + `",state="used"} ` + used + "\n"
}

func sweeps(outcome, values string) string {
	return `cilium_operator_sweep_runs_total{instance="a",module="m",outcome="` + outcome + `"} ` + values + "\n"
}

// TestAlertsFire has Prometheus' own engine judge every alert in situations that
// it is for, and in those that look like them.
func TestAlertsFire(t *testing.T) {
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	rules := readRules(t)
	for _, r := range rules {
		s := situations[r.Alert]
		if len(s.fires) == 0 || len(s.silent) == 0 {
			t.Errorf("%s: there is no situation in which it fires, or none in which it does not", r.Alert)
		}
		for _, series := range s.fires {
			if !fires(t, engine, r, series) {
				t.Errorf("%s is silent, with\n%s", r.Alert, series)
			}
		}
		for _, series := range s.silent {
			if fires(t, engine, r, series) {
				t.Errorf("%s fires, with\n%s", r.Alert, series)
			}
		}
	}
	for name := range situations {
		if !slices.ContainsFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == name }) {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// end is when the last samples are taken.
var end = time.Unix(0, 0).Add(99 * time.Minute)

// fires reports whether a rule's expression has held for as long as the rule
// asks, at the end.
func fires(t *testing.T, engine *promql.Engine, r rulefmt.Rule, series string) bool {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.TrimRight("\t"+strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n\t"), "\t")+"\n")
	defer storage.Close()
	for at := end.Add(-time.Duration(r.For)); !at.After(end); at = at.Add(time.Minute) {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, r.Expr, at)
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		query.Close()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		if len(vector) == 0 {
			return false
		}
	}
	return true
}
