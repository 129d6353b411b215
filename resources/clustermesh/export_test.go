// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// exported is the value of an export, with more fields than this release knows.
func exported(cluster, kind string, port int) string {
	return fmt.Sprintf(`{"cluster":%q,"name":"web","namespace":"shop","exportCreationTimestamp":"2024-08-01T10:00:00Z","ports":[{"name":"http","protocol":"TCP","port":%d}],"type":%q,"sessionAffinity":"None","Labels":{"a":"b"},"ipFamilies":["IPv4"]}`,
		cluster, port, kind)
}

// MESH-10: values of service exports are used as a whole or not at all; fields of newer releases are ignored.
func TestDecodeServiceExport(t *testing.T) {
	e, err := decodeServiceExport("a", web, []byte(exported("a", "Headless", 80)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cluster":"a","name":"web","namespace":"shop","exportCreationTimestamp":"2024-08-01T10:00:00Z","ports":[{"name":"http","protocol":"TCP","port":80}],"type":"Headless","sessionAffinity":"None"}`
	if got, err := json.Marshal(e); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if e, err := decodeServiceExport("a", slim.Key{Namespace: "Shop", Name: "web"}, []byte(strings.Replace(exported("a", "Headless", 80), "shop", "Shop", 1))); err == nil {
		t.Errorf("of a namespace that cannot exist: %+v", e)
	}
	for name, value := range map[string]string{
		"no JSON": "{", "of another cluster": exported("b", "Headless", 80), "of another type": exported("a", "NodePort", 80),
		"without a port": exported("a", "Headless", 0), "with a port too high": exported("a", "Headless", 65536),
	} {
		if e, err := decodeServiceExport("a", web, []byte(value)); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// MESH-16; MESH-E9: service exports are read with the multi-cluster services API alone, of clusters that know it.
func TestServiceExports(t *testing.T) {
	w, a, b := newWorld(t), newPeer(t, "a", 2).publish(`"serviceExportsEnabled":true,"syncedCanaries":true`), newPeer(t, "b", 3).publish("")
	key := "cilium/state/serviceexports/v1/"
	a.Put(key+"a/shop/web", exported("a", "Headless", 80), 0)
	b.Put(key+"b/shop/web", exported("b", "Headless", 80), 0)
	w.file("a", a.Endpoints()[0])
	w.file("b", b.Endpoints()[0])
	w.start("--clustermesh-enable-endpoint-sync=false", "--clustermesh-enable-mcs-api")
	w.eventually("b has no exports", func() bool { _, state := w.mesh.ServiceExports.Get("b", web); return state == Absent })
	if _, state := w.mesh.ServiceExports.Get("a", web); state != Unknown {
		t.Errorf("before the marker it is %v", state)
	}
	a.mark(kvstore.ServiceExportsPrefix)
	w.eventually("the export of a is known", func() bool { _, state := w.mesh.ServiceExports.Get("a", web); return state == Present })
	w.eventually("both clusters are ready", func() bool { return w.status("a").Ready && w.status("b").Ready && w.Degraded("clustermesh") == "" })
	w.eventually("the metric", func() bool { return w.Metric("clustermesh_global_service_exports", "here") == 1 })
	b.mark(kvstore.ServiceExportsPrefix)
	b.publish(`"serviceExportsEnabled":true`)
	w.eventually("the export of b is known", func() bool { _, state := w.mesh.ServiceExports.Get("b", web); return state == Present })
	w.remove("a")
	w.eventually("a is forgotten", func() bool { _, state := w.mesh.ServiceExports.Get("a", web); return state == Unknown })
}
