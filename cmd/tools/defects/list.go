// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

// defects are broken promises, each with the test that tells.
var defects = []defect{
	// Leader election and its fence.
	{
		what: "a leader writes on for two renew deadlines after its term",
		file: "cells/leader/renew.go",
		old:  "fence.Extend(from, e.Config.LeaderElectionRenewDeadline)", new: "fence.Extend(from, 3*e.Config.LeaderElectionRenewDeadline)",
		pkg: "cmd/operator", test: "^TestInvariant2NoWriteOutsideTerm$/^lease_requests_fail$",
	},
	{
		what: "a standby looks at the lease every five seconds",
		file: "cells/leader/config.go",
		old:  "return min(pollPeriod, c.LeaderElectionRetryPeriod)", new: "return max(20*pollPeriod, c.LeaderElectionRetryPeriod)",
		pkg: "cells/leader", test: "^TestAStandbyOnlyLooks$",
	},
	{
		what: "a write is not held to the fence when it reaches the socket",
		file: "resources/internal/fenced/conn.go",
		old:  "\tif err := c.dialer.fence.Check(); err != nil {\n\t\tc.reset()\n\t\treturn 0, err\n\t}\n\treturn c.Conn.Write(b)", new: "\treturn c.Conn.Write(b)",
		pkg: "resources/internal/fenced", test: "^TestLateWriteIsRefusedAndEndsTheConnection$/^tcp$",
	},
	{
		what: "the lease is released before the duties have stopped",
		file: "cells/leader/elector.go",
		old:  "\te.leaveTerm(ctx)\n", new: "\te.release(ctx)\n\te.leaveTerm(ctx)\n",
		pkg: "cells/leader", test: "^TestALeaseIsReleasedWhenWritesHaveSettled$",
	},
	{
		what: "a lease that another operator has emptied is free at once",
		file: "cells/leader/plan.go",
		old:  "s.release != nil || s.holder() == me {\n\t\treturn true", new: "s.release != nil || s.holder() == me || s.holder() == \"\" {\n\t\treturn true",
		pkg: "cells/leader", test: "^TestALeaseIsFreeWhenItsStateHasStoodForItsDuration$",
	},
	{
		what: "a lease whose holder was killed is free after half its duration",
		file: "cells/leader/plan.go",
		old:  "s.at.Monotonic+c.waitOut(s.lease.Spec.LeaseDurationSeconds)", new: "s.at.Monotonic+c.waitOut(s.lease.Spec.LeaseDurationSeconds)/2",
		pkg: "cells/leader", test: "^TestALeaseIsFreeWhenItsStateHasStoodForItsDuration$",
	},
	{
		what: "the writes of a leader that did not release the lease are not waited for",
		file: "cells/leader/plan.go",
		old:  "return s.at.Monotonic + c.LeaderElectionRenewDeadline + c.requestTimeout()", new: "return s.at.Monotonic + 0*c.requestTimeout()",
		pkg: "cells/leader", test: "^TestAPredecessorThatDidNotReleaseIsWaitedOut$",
	},
	{
		what: "a standby writes the lease at every look",
		file: "cells/leader/elector.go",
		old:  "\tlease, err := e.lock.get(ctx)\n", new: "\tlease, err := e.lock.get(ctx)\n\tif lease != nil {\n\t\t_, _ = e.lock.leases.Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{})\n\t}\n",
		pkg: "cells/leader", test: "^TestAStandbyOnlyLooks$",
	},

	// Streams.
	{
		what: "what is asked for as of now is listed",
		file: "resources/stream/stream.go",
		old:  "err := r.WaitForFresh(ctx)\n", new: "err := r.Relist(ctx)\n",
		pkg: "resources/stream", test: "^TestConformance$/^fake$/^protobuf$/^WaitForFreshCostsNoList$",
	},
	{
		what: "how far the server is, is asked once",
		file: "resources/stream/internal/reflector/progress.go",
		old:  "return r.awaitShown(ctx, now)\n", new: "return r.changes.AwaitRevision(ctx, now)\n",
		pkg: "resources/stream", test: "^TestConformance$/^fake$/^protobuf$/^WaitForFreshSeesPastForeignWrites$",
	},

	// etcd.
	{
		what: "keys of a lost lease are not written again",
		file: "resources/kvstore/lease.go",
		old:  "\tfor _, key := range orphans {\n\t\tl.restore(key, id)\n\t}\n", new: "",
		pkg: "resources/kvstore", test: "^TestLostLeaseIsReplaced$",
	},
	{
		what: "a lock is removed at first sight",
		file: "cells/lockgc/plan.go",
		old:  "\t\tcase now[path].Key == e.Key:\n\t\t\tfresh = append(fresh, e)", new: "\t\tcase now[path].Key == e.Key:\n\t\t\tstuck = append(stuck, e)",
		pkg: "cells/lockgc", test: "^TestOnlyTheStuckAreRemoved$",
	},
	{
		what: "an identity is unused although its number is in use",
		file: "cells/identitygc/kvstore/plan.go",
		old:  "if numbers[n] || !known ||", new: "if numbers[0] || !known ||",
		pkg: "cells/identitygc/kvstore", test: "^TestNoneInUseIsFound$",
	},

	// Duties.
	{
		what: "a Service of a Namespace that was not seen yet is exported",
		file: "cells/servicesync/controller.go",
		old:  "if scope == globalnamespace.Unknown || c.hidesSlice(key) {", new: "if c.hidesSlice(key) {",
		pkg: "cells/servicesync", test: "^TestScopes$",
	},
	{
		what: "a label that another cluster must not set is taken of it",
		file: "resources/clustermesh/metadata.go",
		old:  "== 0 && !isReservedLabel(key)", new: "== 0",
		pkg: "resources/clustermesh", test: "^TestDecodeMetadata$",
	},
	{
		what: "a ServiceImport is deleted while a cluster that may export it is unknown",
		file: "cells/mcsapi/plan.go",
		old:  "case len(all) == 0 && !s.isHeld() && !s.mayBeExported():", new: "case len(all) == 0:",
		pkg: "cells/mcsapi", test: "^TestPlanImport$",
	},
	{
		what: "a ServiceImport loses the ports of a cluster that is away",
		file: "cells/mcsapi/plan.go",
		old:  "return slices.ContainsFunc(of, func(c mcsv1alpha1.ClusterStatus) bool { return slices.Contains(s.unknown, c.Cluster) })", new: "return false",
		pkg: "cells/mcsapi", test: "^TestPlanImport$",
	},
	{
		what: "changes at the same time are written one by one",
		file: "cells/endpointslice/batch.go",
		old:  "due := p.last.Add(quietPeriod)", new: "due := p.last",
		pkg: "cells/endpointslice", test: "^TestWhenASliceIsWritten$",
	},
	{
		what: "a cluster without any Node is believed",
		file: "cells/nodegc/controller.go",
		old:  " || c.nodes.Len() == 0 {", new: " {",
		pkg: "cells/nodegc", test: "^TestNoNodes$",
	},
	{
		what: "a stop waits for an address that is taken",
		file: "cells/health/internal/httpserver/server.go",
		old:  "if !job.Sleep(s.ctx, RetryInterval) {", new: "if time.Sleep(RetryInterval); !job.Sleep(s.ctx, 0) {",
		pkg: "cells/health/internal/httpserver", test: "^TestStopWhileWaiting$",
	},
	{
		what: "a backend whose BackendTLSPolicy is not valid is spoken to without TLS",
		file: "cells/gateway/internal/route/compile.go",
		old:  "return b, !a.losesBackend()", new: "return b, true",
		pkg: "cells/gateway/internal/route", test: "^TestBackendsUnderPolicies$",
	},
	{
		what: "a cluster keeps the TLS of the model before",
		file: "resources/domain/envoy/assemble.go",
		old:  "protocol: used[name].protocol, tls: b.TLS.text()}", new: "protocol: used[name].protocol}",
		pkg: "resources/domain/envoy", test: "^TestUpstreamTLS$",
	},
	{
		what: "Endpoints are asked for under a role that does not allow it",
		file: "resources/envoy/placeholders.go",
		old:  "return decision{bySlice, allowsAll(r, endpointsResource, removeVerbs)}, true", new: "return decision{bySlice, true}, true",
		pkg: "resources/envoy", test: "^TestDecision$",
	},

	// Goroutines, and the proxy that other tests judge by.
	{
		what: "the end of a package does not tell what its tests leave",
		file: "runtime/waittest/leaks.go",
		old:  "if err == nil || time.Now().After(deadline) {\n\t\t\treturn err\n", new: "if err == nil || time.Now().After(deadline) {\n\t\t\treturn nil\n",
		pkg: "runtime/waittest", test: ".",
	},
	{
		what: "a black hole delivers what a connection sent that was reset",
		file: "cmd/devcluster/internal/faultproxy/conn.go",
		old:  "if held && !side.BlackHole && isClosed(p.reset) {", new: "if held && !side.BlackHole && false {",
		module: "cmd/devcluster", pkg: "internal/faultproxy", test: "^TestBlackHoleLosesWhatAResetConnectionSent$",
	},
	{
		what: "a request that was held is taken for one that was sent late",
		file: "cmd/devcluster/internal/faultproxy/conn.go",
		old:  "p.arrived.set(next.arrived)", new: "p.arrived.set(time.Now())",
		module: "cmd/devcluster", pkg: "internal/faultproxy", test: "^TestArrivalIsWhenBytesWereSent$",
	},
}
