// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/metrics"
)

// event is what the reference says of a reason of Kubernetes Events.
type event struct{ about, namespace, says string }

var events = map[string]event{
	"InvalidNodeSelector":       {"the Service", "its own", "the annotation `io.cilium.nodeipam/match-node-labels` is not a label selector, and the addresses stay as they are"},
	"ConflictingClusterConfigs": {"the CiliumBGPClusterConfig", "`default`", "it selects a node whose CiliumBGPNodeConfig belongs to another one, or to none"},
	"InvalidClusterConfig":      {"the CiliumBGPClusterConfig", "`default`", "its spec is not valid, and its CiliumBGPNodeConfigs stay as they are"},
	"MissingPeerConfigs":        {"the CiliumBGPClusterConfig", "`default`", "a CiliumBGPPeerConfig that it refers to does not exist"},
	"OverrideRefused":           {"the CiliumBGPNodeConfigOverride", "`default`", "it cannot be applied, and the CiliumBGPNodeConfig of the node stays as it is"},
	"OverrideWithoutEffect":     {"the CiliumBGPNodeConfigOverride", "`default`", "its node, or a router or peer that it names, does not exist"},
	"InvalidPolicy":             {"the network policy", "its own", "agents do not accept a rule of it; the condition `Valid` has all of them"},
	"GroupNotLookedUp":          {"the network policy", "its own", "a group that it refers to cannot be looked up in the cloud, and its CiliumCIDRGroup stays as it is"},
	"ServiceTooLarge":           {"the Service", "its own", "other clusters do not see all of its ports, hostnames or labels, since its key would be larger than etcd accepts"},
	"NodeTooLarge":              {"the CiliumNode", "`default`", "its key in etcd is written without annotations and labels, or without more addresses and CIDRs than a node has, or not at all, since it would be larger than etcd accepts"},
	"BackendsNotExported":       {"the Service", "its own", "it has so many backends and ports that other clusters do not see all of them"},
	"PortOfAnother":             {"the Service", "its own", "it has a port of the nodes that a component of the cluster, or an older Service or a listener of another namespace has, and gets no addresses there"},
	"NoEligibleNode":            {"the Service", "its own", "no node is eligible, and the Service has no addresses"},
	"PodAddressRefused":         {"the Pod", "its own", "its status shows an address that no pod can have, or a node that it is not on, which is left out of its CiliumEndpointSlice (`ces-controller-mode=slim`)"},
	"PodCIDRPoolExhausted":      {"the CiliumNode", "`default`", "there is no block left for the node"},
	"PodCIDRRefused":            {"the CiliumNode", "`default`", "a CIDR that the node says it has is another's, is not of the cluster, is too large, or is none"},
	"PodCIDRUndecided":          {"the CiliumNode", "`default`", "the node waits for another one that cannot be decoded, and may have any CIDR"},
	"PodCIDRsUndecodable":       {"the CiliumNode", "`default`", "`spec.ipam.podCIDRs` of the node cannot be decoded"},
	"LabelsTooLarge":            {"the Pod", "its own", "its labels have more than 32 KiB together, and it gets no identity, or is in no CiliumEndpointSlice where agents make identities"},
	"SecurityLabelsRestored":    {"the CiliumIdentity", "`default`", "its labels were edited, and those that it was given were put back"},
	"IdentitiesRunOut":          {"the operator's lease", "the operator's", "the range of numbers of identities is nearly full"},
	"UnmanagedPod":              {"the pod", "the pod's", "the pod has no CiliumEndpoint, and restarts are off (`enable-unmanaged-pod-observe-only`)"},
	"UnmanagedPodRestarted":     {"the pod", "the pod's", "the pod had no CiliumEndpoint, and was deleted to be replaced by one that has"},
	"HandlingPanicked":          {"the operator's lease", "the operator's", "the handling of an object panicked, at a line that is named; the object waits, and others go on"},
	"SweepBraked":               {"the operator's lease", "the operator's", "so much looks like garbage that nothing is deleted"},
	"UnknownMode":               {"the Service", "its own", "the annotation `service.cilium.io/lb-l7` has a value that is not known, and no effect"},
	"AlgorithmWithoutHash":      {"the Service", "its own", "the annotation `service.cilium.io/lb-l7-algorithm` asks for an algorithm of hashes, which balances as random"},
	"BackendNotFound":           {"the Ingress", "its own", "a Service that it refers to does not exist; its requests are answered with 503"},
	"BackendPortNotFound":       {"the Ingress", "its own", "a Service that it refers to has no such port; its requests are answered with 503"},
	"SecretNotValid":            {"what refers to the Secret", "its own", "a Secret for TLS has no certificate with its key, and Envoy does not take it"},
	"DerivedServiceRefused":     {"the ServiceImport or ServiceExport", "its own", "it has no derived Service, since another Service has the name, or the API server does not accept it; or EndpointSlices have the names of copies"},
	"HostWithoutRule":           {"the Ingress", "its own", "a host of `spec.tls` has no rule, or an entry no host"},
	"ClassNotServed":            {"the Service", "its own", "its load-balancer class begins as those of Cilium, and is not known, or its option is off"},
	"UnknownAnnotation":         {"the Service", "its own", "annotations begin as those for addresses of load balancers, and have no effect, since they are not known"},
	"AddressOfAnother":          {"the Service", "its own", "an address that its status showed when the operator began, or that it can share no more, belongs to an older Service, whose status shows it, too"},
	"AddressContested":          {"the Service", "its own", "the status of a younger Service showed its address, too, when the operator began; or one of another namespace cannot share it any more, and loses it"},
	"HostOfAnother":             {"the Ingress, route or ListenerSet", "its own", "what it asks for of a host belongs to an older object, mostly of another namespace"},
	"HostPortOfAnother":         {"the Ingress, the Gateway or the ListenerSet", "its own", "a port of the nodes that it asks for belongs to a component of the cluster, or to an older one of another namespace, and it is not served there"},
	"HostOfThis":                {"the Ingress, route or Gateway", "its own", "younger objects, mostly of other namespaces, ask for what it has of its hosts, or its port of the nodes, and do not get it"},
	"HostShared":                {"the route", "its own", "a route of another namespace has one of its hosts at a listener, too: the older one gets the requests that both describe alike, the younger one those that it describes better"},
	"InvalidAlgorithm":          {"the Service", "its own", "the annotation `service.cilium.io/lb-l7-algorithm` is unknown, and round robin is used"},
	"InvalidAnnotation":         {"the Ingress", "its own", "an annotation is not valid, and is as if it was not set"},
	"InvalidGlobalAnnotation":   {"the Namespace or Service", "`default`, or the Service's", "the annotation `clustermesh.cilium.io/global` of a Namespace, or `service.cilium.io/global` or `shared` of a Service, is neither `true` nor `false`, and counts as `false`"},
	"InvalidName":               {"the Ingress", "its own", "its name has dots, and is no name of a Service, so that it has no load balancer"},
	"NoClusterIP":               {"the Service", "its own", "its requests are not balanced: it has no address that agents could redirect"},
	"SecretOfAnotherNamespace":  {"the network policy", "its own", "a Secret that it refers to is of another namespace, and is copied for agents"},
	"SecretRefused":             {"the network policy", "its own", "a Secret that it refers to is of another namespace, and `--policy-secrets-own-namespace-only` refuses it"},
	"SecretNotCopied":           {"the Ingress, Gateway or network policy", "its own", "a Secret that it refers to is not copied, since another one has the name of the copy"},
	"SecretNotFound":            {"the Ingress, Gateway or network policy", "its own", "a Secret or ConfigMap that it refers to does not exist"},
	"NoSecret":                  {"the Ingress", "its own", "a host of `spec.tls` has no secret, and is served without TLS"},
	"NoTCPPort":                 {"the Service", "its own", "its requests are not balanced: it has no TCP port"},
	"ServedAlready":             {"the Service", "its own", "its requests are not balanced here: it is that of an Ingress or a Gateway"},
	"LeftOut":                   {"the Ingress, the route or the ListenerSet", "its own", "the configuration of the shared load balancer, or of the Gateway, would be too large with it"},
	"NothingToServe":            {"the Ingress", "its own", "it has no rule or backend that can be served"},
	"NotTranslated":             {"the Ingress", "its own", "a route is left out that Envoy would refuse"},
	"NotWritten":                {"the Ingress or Service", "its own", "an object of the name of one of its own is another's, or its configuration is too large"},
	"PathWithoutType":           {"the Ingress", "its own", "a path is left out that has no type"},
	"RuleWithoutHost":           {"the Ingress", "its own", "a rule is left out: TLS is passed through by host"},
	"RuleWithoutPaths":          {"the Ingress", "its own", "a rule is left out that has no paths"},
	"UnsupportedBackend":        {"the Ingress", "its own", "a backend is left out that is no Service"},
	"UnsupportedPath":           {"the Ingress", "its own", "a path is left out: TLS is passed through for `/` alone"},
	"ClientCertificatesIgnored": {"the Gateway", "its own", "`spec.tls` asks for client certificates to be verified, or sent to backends, and neither is done"},
}

var camelCase = regexp.MustCompile(`^([A-Z]+[a-z]+){2,}[A-Z]*$`)

// eventReasons finds the reasons in calls that make Events, and in functions that choose one.
func eventReasons(s sources) map[string]bool {
	found := map[string]bool{}
	note := func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && camelCase.MatchString(text) {
				found[text] = true
			}
		}
		return true
	}
	s.calls(func(_ string, _ *sourcePackage, in *ast.FuncDecl, call *ast.CallExpr) {
		switch called(call) {
		case "Warn", "Warning", "Normal", "WarnOnLease":
			for _, arg := range call.Args {
				if _, ok := arg.(*ast.BasicLit); ok {
					note(arg)
				}
			}
		case "notice", "notServed":
			note(call.Args[0])
		}
	})
	for _, p := range s {
		for name, declared := range p.funcs {
			for _, f := range declared {
				if strings.HasSuffix(name, "ventReason") {
					ast.Inspect(f, note)
				}
				ast.Inspect(f, func(n ast.Node) bool { // notices of resources/envoy
					if kv, ok := n.(*ast.KeyValueExpr); ok {
						if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Reason" {
							note(kv.Value)
						}
					}
					return true
				})
			}
		}
	}
	return found
}

func eventsPage(t *testing.T, s sources) string {
	t.Helper()
	sameKeys(t, "Event reasons", eventReasons(s), events)
	var b strings.Builder
	b.WriteString("Kubernetes Events of type Warning, as `kubectl describe` and `kubectl get events` show them. They need `create` and\n" +
		"`patch` on `events`; without them none is sent, and health and the log have the same. Repetitions are counted on the\n" +
		"Event that exists; an object gets at most 25 at once, then one every five minutes.\n\n" +
		"| Reason | About | Namespace | Says |\n|---|---|---|---|\n")
	for _, reason := range slices.Sorted(maps.Keys(events)) {
		e := events[reason]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", reason, e.about, e.namespace, e.says)
	}
	return b.String()
}

// parts are what modules report below their id, beside hooks and jobs.
var parts = map[string]string{
	"attempts":       "attempts under way that take more than five seconds",
	"config":         "a change of the ConfigMap or file that has no effect before a restart",
	"addresses":      "what a cloud shows as addresses, and no pod can have",
	"conflicts":      "what objects ask for of hosts and ports, and older objects of other namespaces have",
	"contention":     "changes that another writer undoes",
	"contended-keys": "keys of etcd that another writer changes, deletes or creates again and again",
	"restarts":       "unmanaged pods that the role does not allow to delete",
	"create":         "creates of identities that are forbidden",
	"entries":        "registration entries that the SPIRE server refuses to create or delete",
	"directory":      "files of the directory of remote clusters that cannot be used",
	"etcd":           "the state of the connection to etcd",
	"gops":           "the gops agent",
	"interfaces":     "interfaces of which EC2 shows what is no address",
	"job-…":          "a job",
	"loop-…":         "keys of a work queue that fail",
	"too-large":      "what is not written to etcd, or not as a whole, since it is larger than a request can be",
	"left-out":       "what is left out of a remote cluster's keys, exports or endpoints, as there is too much",
	"mesh":           "Services with routes that are not served as they ask for",
	"mirror-…":       "keys that are written to etcd below a prefix",
	"objects":        "objects of which nothing can be decoded, or not all of a pool, CiliumBGPClusterConfigs without an effect, and Ingresses, Gateways and Services that are not served as they ask for",
	"objects-…":      "objects that wait because their handling panicked",
	"node-addresses": "addresses of Nodes at which no node is reached",
	"nodes":          "pod CIDRs that are refused or cannot be decoded",
	"numbers":        "how many numeric identities are in use",
	"options":        "questionable values of options",
	"outside-…":      "calls to another server",
	"references-…":   "objects that may refer to others: why references to this kind may be missing",
	"permissions":    "permissions that the role lacks",
	"placeholders":   "as what Services of Ingresses and Gateways have an endpoint in place of backends",
	"restore":        "etcd data that were replaced by older ones",
	"selectors":      "node selectors of Services that are invalid",
	"stale":          "registration entries of identities that do not exist, and that are too many to be deleted",
	"sweep-…":        "the last run of a sweep",
	"tls":            "certificates of the metrics server",
	"uncaused":       "writes without a cause",
	"undeclared":     "requests that no module declares",
	"waits-for-…":    "what the module has waited for longer than five seconds",
	"provisioning":   "addresses that Azure has failed to provision",
	"subnets":        "subnets of interfaces that cannot be read at Azure",
}

// levels are the health levels, with what a change to them means.
const levels = `A part is in one of three levels. Any report replaces the one before; the time that is shown is that of the last change
of the level.

| From | To | When |
|---|---|---|
| – | OK | first report: the part does what it should |
| – | Degraded | first report: it does not, and the message says what and why |
| OK | Degraded | an attempt failed, a dependency is missing for five seconds, a permission is missing |
| Degraded | OK | the next success; nothing else ends it |
| –, OK, Degraded | Stopped | the part ended as planned: a one-shot job is done |
| Stopped | OK, Degraded | the part was started again |
| any | – | the module was stopped, its term ended, or the part was removed |

A module is as bad as the worst of its parts. ` + "`cilium_hive_status{status}`" + ` counts the parts by level.
`

// TestLevelTransitions holds the table of levels against a tree: it has a row for every change, and each happens as
// the table has it.
func TestLevelTransitions(t *testing.T) {
	const none = "–"
	report := map[string]func(health.Reporter){
		none:                    health.Reporter.Remove,
		string(health.OK):       func(r health.Reporter) { r.OK("") },
		string(health.Degraded): func(r health.Reporter) { r.Degraded("m", errors.New("e")) },
		string(health.Stopped):  func(r health.Reporter) { r.Stopped("") },
	}
	rows := map[[2]string]bool{}
	for line := range strings.Lines(levels) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for from := range strings.SplitSeq(strings.ReplaceAll(cells[1], "any", "OK, Degraded, Stopped"), ",") {
				for to := range strings.SplitSeq(cells[2], ",") {
					rows[[2]string{strings.TrimSpace(from), strings.TrimSpace(to)}] = true
				}
			}
		}
	}
	for from, before := range report {
		for to, after := range report {
			if from == to {
				continue
			}
			if !rows[[2]string{from, to}] {
				t.Errorf("no row from %s to %s", from, to)
			}
			tree := health.NewTree()
			before(tree.Reporter("part"))
			after(tree.Reporter("part"))
			got := tree.Snapshot()
			if to == none && len(got) > 0 || to != none && (len(got) != 1 || string(got[0].Level) != to || (got[0].Error != "") != (to == "Degraded")) {
				t.Errorf("from %s to %s: %+v", from, to, got)
			}
		}
	}
}

// madeParts are parts of health whose names do not stand in the code, by the package and the expression, with what bounds their number.
var madeParts = map[string]string{
	"cells/health/internal/httpserver: name":                                                      "the servers of the process",
	"cells/ipam/multipool: part":                                                                  "two of the code",
	"cells/secretsync: \"references-\" + strings.ToLower(string(kind))":                           "kinds that are copied",
	"cells/secretsync: strings.ToLower(kind)":                                                     "kinds that refer to Secrets",
	"resources/clustermesh: name":                                                                 "remote clusters, which the administrator sets up",
	"resources/kvstore: \"mirror-\" + strings.ReplaceAll(keyClass(m.prefix), \"/\", \"-\")":       "prefixes of keys in the code",
	"resources/outside: \"outside-\" + server":                                                    "servers that the code names",
	"resources/reconcile: \"loop-\" + dashed":                                                     "work queues of the code",
	"resources/reconcile: \"objects-\" + strings.ToLower(strings.ReplaceAll(rule, \" \", \"-\"))": "rules of the code",
	"resources/stream: kind.gvr.Resource":                                                         "kinds that the code watches",
	"resources/sweep: \"sweep-\" + strings.ReplaceAll(spec.Rule, \" \", \"-\")":                   "sweeps of the code",
	"runtime/health: \"waits-for-\" + name":                                                       "streams, and etcd",
	"runtime/job: \"job-\" + t.name":                                                              "jobs of the code",
}

// API-17: the number of parts of health does not grow with what others write: a part whose name is made has a row that says what bounds it.
func TestPartsOfHealthAreBounded(t *testing.T) {
	found := map[string]bool{}
	readSources(t, "cells", "resources", "runtime").calls(func(dir string, p *sourcePackage, in *ast.FuncDecl, call *ast.CallExpr) {
		if called(call) != "Child" || len(call.Args) != 1 {
			return
		}
		if names := p.texts(in, call.Args[0]); len(names) == 0 || strings.Contains(strings.Join(names, ""), "…") {
			found[dir+": "+types.ExprString(call.Args[0])] = true
		}
	})
	sameKeys(t, "made parts of health", found, madeParts)
}

func healthPage(t *testing.T, s sources, hives []*hive.Hive) string {
	t.Helper()
	found := map[string]bool{}
	s.calls(func(_ string, p *sourcePackage, in *ast.FuncDecl, call *ast.CallExpr) {
		if called(call) == "Child" && len(call.Args) == 1 {
			for _, part := range p.texts(in, call.Args[0]) {
				found[part] = true
			}
		}
	})
	sameKeys(t, "parts of health", found, parts)
	var b strings.Builder
	b.WriteString("The paths of `operator status health`: the id of a module, then a hook, a job or a part.\n\n## Levels\n\n" + levels +
		"\n## Parts\n\nAny module may have those of the mechanisms that it uses; `…` is a name.\n\n| Part | About |\n|---|---|\n")
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", part, parts[part])
	}
	b.WriteString("\nStreams are `stream.<module that declares the kind>.<resource>`; modules that wait for one are degraded by\n" +
		"`waits-for-<resource>`. What the messages mean: [troubleshooting](../troubleshooting.md).\n\n## Hooks and jobs\n\n| Path | Lives |\n|---|---|\n")
	steps := map[string]string{}
	for _, h := range hives {
		for _, order := range h.Graph().Orders {
			for _, step := range order.Steps {
				steps[step.ID] = order.Term
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(steps)) {
		lives := "process"
		if steps[id] != "" {
			lives = "term " + steps[id]
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", id, lives)
	}
	return b.String()
}

// label is what the reference has about a label: its values, and what bounds their number.
type label struct{ values, bound string }

// What bounds the number of values of a label. None is a text that tenants, nodes, remote clusters or clouds choose without a bound.
const (
	ofCode    = "the code has them all"
	ofSetup   = "as the administrator sets it up"
	ofObjects = "objects that the administrator makes, and instances of the cloud: series go with them"
	ofNames   = "the first 1,000, and `other`, of errors `failed`, for the rest"
)

// seriesTest is a test, by its directory and name, that the series of some metrics have the bound of a label. Without a name it stands for
// metrics in which the code has all values of that label.
type seriesTest struct {
	dir, name string
	metrics   []string // without the prefix of all
}

func boundedBy(dir, name string, of ...string) seriesTest { return seriesTest{dir, name, of} }

// seriesTests have a row for each metric with a label that objects or others fill: one that is added needs a test, also where the label is an old one.
var seriesTests = map[string][]seriesTest{
	"availability_zone": {boundedBy("resources/cloudipam", "TestSeriesOfSubnetsAreBounded", "ipam_available_ips_per_subnet")},
	"subnet_id": {
		// All counters have the label that the test counts.
		boundedBy("resources/cloudipam", "TestSeriesOfSubnetsAreBounded",
			"ipam_available_ips_per_subnet", "ipam_allocation_duration_seconds", "ipam_ip_allocation_ops", "ipam_ip_release_ops", "ipam_interface_creation_ops"),
		boundedBy("resources/cloudipam", "TestSeriesOfErrorsAreBounded", "ipam_release_duration_seconds"),
	},
	"status": {
		boundedBy("resources/cloudipam", "TestSeriesOfErrorsAreBounded", "ipam_release_duration_seconds", "ipam_allocation_duration_seconds"),
		boundedBy("cells/mcsapi", "TestSeriesAreBounded", "mcsapi_serviceexport_status_condition", "mcsapi_serviceimport_status_condition"),
		boundedBy("", "", "controllers_group_runs_total", "identity_gc_entries", "ipam_background_sync_duration_seconds"),
	},
	"serviceexport": {boundedBy("cells/mcsapi", "TestSeriesAreBounded", "mcsapi_serviceexport_info", "mcsapi_serviceexport_status_condition")},
	"serviceimport": {boundedBy("cells/mcsapi", "TestSeriesAreBounded",
		"mcsapi_serviceimport_info", "mcsapi_serviceimport_status_condition", "mcsapi_serviceimport_status_clusters")},
	"namespace": {boundedBy("cells/mcsapi", "TestSeriesAreBounded", "mcsapi_serviceexport_info", "mcsapi_serviceexport_status_condition",
		"mcsapi_serviceimport_info", "mcsapi_serviceimport_status_condition", "mcsapi_serviceimport_status_clusters")},
	"target_node":   {boundedBy("resources/cloudipam", "TestSeriesOfNodesGo", "ipam_available_ips", "ipam_used_ips", "ipam_needed_ips")},
	"resource_name": {boundedBy("cells/bgp", "TestBadObjects", "bgp_control_plane_reconcile_errors_total")},
	"pool": {
		boundedBy("cells/ipam/multipool", "TestSeriesAreBounded", "ipam_pool_blocks", "ipam_pool_nodes_starved", "ipam_pool_conflicts"),
		boundedBy("cells/lbipam", "TestSeriesOfPoolsGo", "lbipam_ips_available", "lbipam_ips_used", "lbipam_ips_available_total", "lbipam_ips_used_total"),
	},
}

// labels are those of all metrics.
var labels = map[string]label{
	"action":            {"`read`, `write`, `delete`, and what else a request to etcd does; of changes of a watch `create`, `modify`, `delete`", ofCode},
	"arch":              {"the architecture that the program is built for, such as amd64", ofSetup},
	"availability_zone": {"a zone of a cloud, empty where it has none", ofNames},
	"category":          {"of nodes `total`, `in-deficit`, `at-capacity`", ofCode},
	"group_name":        {"the name of a work queue, as in `queue_name`", ofCode},
	"operation":         {"a call to a server outside of Kubernetes, in the words of its API", ofCode},
	"queue":             {"of slices `fast`, `standard`", ofCode},
	"event":             {"`upsert` or `delete`", ofCode},
	"name":              {"as `queue_name`", ofCode},
	"queue_name":        {"a work queue: the id of its module, a slash and its work, such as `ipam.clusterpool/allocate`", ofCode},
	"response_code":     {"`OK`, the HTTP status, or `Failed` where there was no answer", ofCode},
	"subnet_id":         {"a subnet of a cloud", ofNames},
	"target_node":       {"the name of a CiliumNode", ofObjects},
	"type":              {"of addresses `used`, `available`, `needed`; of changes of a cloud createInterfaceAndAllocateIP, allocateIP, releaseIP; of ServiceImports ClusterSetIP, Headless, and `other` for one without", ofCode},
	"cidr":              {"a cluster CIDR", ofSetup},
	"resource_kind":     {"the kind of an object, such as `CiliumBGPClusterConfig`", ofCode},
	"resource_name":     {"the name of an object", ofObjects},
	"pool":              {"the name of a CiliumPodIPPool, or of a CiliumLoadBalancerIPPool", ofObjects},
	"code":              {"the HTTP status, or `error` where there was no answer", ofCode},
	"crd":               {"the name of a CustomResourceDefinition", ofCode},
	"error":             {"why the check of etcd failed", ofCode},
	"failure_type":      {"of slices `transient`, `fatal`, empty for those that are written", ofCode},
	"family":            {"`IPv4`, `IPv6`", ofCode},
	"host":              {"the API server, with its port", ofSetup},
	"identity_type":     {"`crd`", ofCode},
	"installed":         {"the schema version that is installed, empty for none", ofSetup},
	"job":               {"the name of a job", ofCode},
	"job_name":          {"as `job`", ofCode},
	"kind":              {"the kind of request to etcd", ofCode},
	"level":             {"`error`, `warning`", ofCode},
	"method":            {"the HTTP method; of registration entries `upsert`, `delete`", ofCode},
	"module":            {"the id of a module", ofCode},
	"module_id":         {"as `module`", ofCode},
	"provider":          {"what looks up the groups of a cloud, by its field in a policy", ofCode},
	"opcode":            {"`cepinserted`, `cepremoved`", ofCode},
	"outcome":           {"`success`, `fail`; of sweeps `braked`, too; of deletes `deleted`, `gone`, `failed` and the like", ofCode},
	"path":              {"the path of a resource with {namespace} and {name} in place of names; of what is no resource the first part, such as /healthz", ofCode},
	"phase":             {"`enqueued`: waiting in the queue; `processing`", ofCode},
	"resource":          {"`pod`: a label set; `cid`: a CiliumIdentity", ofCode},
	"result":            {"of CRDs `created`, `updated`, `equal`, `newer`, `foreign`, `failed`; of objects what came of the request", ofCode},
	"reason":            {"why keys of identities are left alone: `foreign-number`, `no-number`, `bad-labels`, `bad-user`", ofCode},
	"return_code":       {"the HTTP status, or `<error>` where there was no answer", ofCode},
	"revision":          {"the commit that the program was built from, empty if that is not known", ofSetup},
	"scope":             {"the kind of key in etcd", ofCode},
	"server":            {"the name of a server outside of Kubernetes", ofSetup},
	"source_cluster":    {"the name of a cluster", ofSetup},
	"source_node_name":  {"the node of the operator, or its host", ofSetup},
	"target_cluster":    {"the name of a remote cluster", ofSetup},
	"topology":          {"whether EndpointSlices have topology hints: Disabled", ofCode},
	"state":             {"of blocks `used`, `free`, `draining`; of nodes `allocated`, `error`, `waiting`, `unstored`; of endpoints `stale-owner`, `foreign-address`; of groups of a cloud `ok`, `pending`; of Services `served`, `skipped`, `conflict`, `no_node`, `port_taken`, `invalid_selector`; of secrets `copied`, `missing`, `conflict`; of registration entries `desired`, `present`, `foreign`, `refused`", ofCode},
	"status":            {"of identities `alive`, `deleted`; of `cilium_hive_status` the levels; of changes of a cloud `success`, `failed`, or why they failed; of attempts of work queues `success`, `failure`; of conditions True, False, Unknown", ofNames},
	"subsystem":         {"the id of a module", ofCode},
	"verb":              {"the verb of a request, as RBAC names it", ofCode},
	"version":           {"a version: of the operator, or of the API server, such as 1.34.1", ofSetup},
	"wanted":            {"the schema version of this operator", ofCode},
	"accepted":          {"whether parents accept a route: true or false", ofCode},
	"programmed":        {"whether a Gateway is programmed: true or false", ofCode},
	"mode":              {"of Ingresses `dedicated`, `shared`", ofCode},
	"serviceexport":     {"the name of a ServiceExport", ofNames},
	"serviceimport":     {"the name of a ServiceImport", ofNames},
	"namespace":         {"the namespace of an object", ofNames},
	"condition":         {"the type of a condition, such as `Ready`", ofCode},
}

// spelled are the values in labels that the code spells out.
var spelled = regexp.MustCompile("`([a-z][a-z-]*)`")

func labelsPage(t *testing.T, s sources, hives []*hive.Hive) string {
	t.Helper()
	used := map[string][]string{}
	for name, m := range declaredMetrics(t, hives) {
		for _, label := range m.Labels {
			used[label] = append(used[label], "`"+name+"`")
		}
	}
	sameKeys(t, "labels of metrics", used, labels)
	literals := s.literals()
	for name, l := range labels {
		for _, value := range spelled.FindAllStringSubmatch(l.values, -1) {
			if !literals[value[1]] {
				t.Errorf("the value %q of label %s is nowhere in the code", value[1], name)
			}
		}
		if hasTest := len(seriesTests[name]) > 0; hasTest != (l.bound == ofObjects || l.bound == ofNames) {
			t.Errorf("label %s: a test of its series: %v, its bound: %s", name, hasTest, l.bound)
		}
		if len(seriesTests[name]) == 0 {
			continue
		}
		tested := map[string]bool{}
		for _, test := range seriesTests[name] {
			if test.name != "" && !hasTestNamed(t, test.dir, test.name) {
				t.Errorf("label %s: %s has no test %s", name, test.dir, test.name)
			}
			for _, metric := range test.metrics {
				tested["`cilium_operator_"+metric+"`"] = true
			}
		}
		has := map[string]bool{}
		for _, metric := range used[name] {
			has[metric] = true
		}
		sameKeys(t, "the series of label "+name, has, tested)
	}
	var b strings.Builder
	b.WriteString("The labels of the [metrics](metrics.md). No label has values that others choose without a bound.\n\n| Label | Values | How many | Metrics |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		slices.Sort(used[name])
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, labels[name].values, labels[name].bound, strings.Join(used[name], ", "))
	}
	return b.String()
}

// hasTestNamed reports whether the tests of a directory have one of this name.
func hasTestNamed(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "func "+name+"(t *testing.T)")
	})
}

// literals are all string literals.
func (s sources) literals() map[string]bool {
	all := map[string]bool{}
	for _, p := range s {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						all[text] = true
					}
				}
				return true
			})
		}
	}
	return all
}

// declaredMetrics are the metrics of all variants, each with all modules that have it.
func declaredMetrics(t *testing.T, hives []*hive.Hive) map[string]metrics.Metric {
	t.Helper()
	all, owners := map[string]metrics.Metric{}, map[string]map[string]bool{}
	for _, h := range hives {
		list, err := h.DeclaredMetrics()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			all[m.Name] = m
			if owners[m.Name] == nil {
				owners[m.Name] = map[string]bool{}
			}
			owners[m.Name][m.Module] = true
		}
	}
	for name, m := range all {
		m.Module = strings.Join(slices.Sorted(maps.Keys(owners[name])), "`, `")
		all[name] = m
	}
	return all
}

// sameKeys compares what the code has with what is explained in this package.
func sameKeys[F, E any](t *testing.T, what string, found map[string]F, explained map[string]E) {
	t.Helper()
	for key := range found {
		if _, ok := explained[key]; !ok {
			t.Errorf("%s: %q is not explained in docs/answers_test.go", what, key)
		}
	}
	for key := range explained {
		if _, ok := found[key]; !ok {
			t.Errorf("%s: %q is explained in docs/answers_test.go, and is nowhere in the code", what, key)
		}
	}
}
