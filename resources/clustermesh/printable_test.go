// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// quoted is the hostile text as JSON.
func quoted(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(printabletest.Hostile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// K6 of the contract's tenants.md, for remote clusters and for the files of the directory: no key, value or error of a remote etcd, no name or
// content of a file controls what it is shown with. The log, the report of health, status clustermesh and troubleshoot each have it.
func TestTextsOfRemoteClusters(t *testing.T) {
	const hostile = printabletest.Hostile
	q := quoted(t)
	w, a, b, c := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "b", 3), newPeer(t, "c", 4)
	for _, p := range []*peer{a, b, c} {
		p.Put("cilium/.heartbeat", hostile, 0)
		p.Put("cilium/cluster-config/"+hostile, hostile, 0)
		p.Put("cilium/synced/"+p.name+"/"+hostile, hostile, 0)
		for _, kind := range []string{"services", "serviceexports", "nodes", hostile} {
			for _, tree := range []string{"state", "cache"} {
				prefix := "cilium/" + tree + "/" + kind + "/v1/" + p.name + "/"
				p.Put(prefix+hostile, hostile, 0)
				p.Put(prefix+"shop/"+hostile, fmt.Sprintf(`{"cluster":%s,"namespace":%[1]s,"name":%[1]s}`, q), 0)
				p.Put(prefix+"shop/"+kind, fmt.Sprintf(`{"cluster":%q,"namespace":"shop","name":%q,"type":%s,"clusterID":%d,"backends":{%[3]s:{%[3]s:{"Protocol":%[3]s,"Port":1}}},"frontends":{%[3]s:{}},"labels":{%[3]s:%[3]s}}`,
					p.name, kind, q, p.id), 0)
			}
		}
	}
	a.serve("state", web, "10.2.0.1")
	b.Put("cilium/cluster-config/b", hostile, 0)
	c.Put("cilium/cluster-config/c", fmt.Sprintf(`{"id":%s,"capabilities":{%[1]s:%[1]s,"cached":%[1]s}}`, q), 0)
	for _, p := range []*peer{a, b, c} {
		w.file(p.name, p.Endpoints()[0])
	}
	w.file(strings.ReplaceAll(hostile, "/", ""), nowhere)
	w.write("d", "endpoints: ["+q+"]\n")
	w.write("e", "endpoints: ["+nowhere+"]\n"+q+": "+q+"\ntrusted-ca-file: "+q+"\ncert-file: "+q+"\nkey-file: "+q+"\n")
	w.write("f", "endpoints: ["+hostile)
	w.write("g", "endpoints: "+q+"\n")
	w.start(operatortest.TextLog, "--clustermesh-enable-mcs-api")
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("all are reported", func() bool {
		for _, part := range []string{"b", "c", "d", "e", "f", "g", "directory"} {
			if w.Degraded("clustermesh."+part) == "" {
				return false
			}
		}
		return w.Metric("clustermesh_unreadable_values", "here", "a") > 0
	})
	w.CheckPrintable()
	var all []RemoteCluster
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		all = append(all, w.status(name))
	}
	var status bytes.Buffer
	if err := WriteText(&status, all, true); err != nil {
		t.Fatal(err)
	}
	printabletest.Check(t, "status clustermesh", status.String())
	var steps bytes.Buffer
	err := troubleshoot(t.Context(), &steps, cluster.Config{ClusterName: "here", ClusterID: 1, MaxConnectedClusters: 255}, w.folder, nil, time.Second)
	if err == nil {
		t.Fatal("troubleshoot finds nothing")
	}
	printabletest.CheckContains(t, "troubleshoot", steps.String())
	printabletest.CheckContains(t, "the error of troubleshoot", err.Error())
	steps.Reset()
	err = troubleshoot(t.Context(), &steps, cluster.Config{ClusterName: "here", ClusterID: 1, MaxConnectedClusters: 255}, w.folder, []string{printabletest.Hostile}, time.Second)
	if err == nil {
		t.Fatal("troubleshoot finds a cluster that is none")
	}
	printabletest.CheckContains(t, "troubleshoot of a cluster that is none", steps.String())
	printabletest.CheckContains(t, "the error of that", err.Error())
	for line := range strings.Lines(err.Error()) { // of the folder, and of the name that is asked for
		if !strings.HasPrefix(line, w.folder) && !strings.HasPrefix(line, "remote cluster ") {
			t.Errorf("the error has the line %q", line)
		}
	}
}
