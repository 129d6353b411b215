// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// exported is the value of an export, with more fields than this release knows.
func exported(cluster, kind string, port int) string {
	return fmt.Sprintf(`{"cluster":%q,"name":"web","namespace":"shop","exportCreationTimestamp":"2024-08-01T10:00:00Z","ports":[{"name":"http","protocol":"TCP","port":%d}],"type":%q,"sessionAffinity":"None","other":{"a":"b"},"another":["IPv4"]}`,
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

// MESH-17: labels and annotations by both spellings of their keys; pairs that are not valid are left out, and values of another
// type make the whole value one that cannot be used.
func TestDecodeMetadata(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		fields              string
		labels, annotations string // "-": the value cannot be used
	}{
		"none":          {`"other":1`, "", ""},
		"the keys":      {`"labels":{"a":"b"},"annotations":{"c":"d"}`, "a=b", "c=d"},
		"older keys":    {`"Labels":{"a":"b"},"Annotations":{"c":"d"}`, "a=b", "c=d"},
		"both":          {`"labels":{"a":"b"},"Labels":{"a":"x","y":"z"},"Annotations":{"e":"f"},"annotations":{"c":"d"}`, "a=b", "c=d"},
		"null":          {`"labels":null,"annotations":null`, "", ""},
		"empty":         {`"labels":{},"Labels":{"a":"b"}`, "", ""},
		"no labels":     {`"labels":{"a b":"c","":"d","e":"` + long + `","f":"g h","i":"j","k/` + long + `":"l"}`, "i=j", ""},
		"no annotation": {`"annotations":{"a b":"c","":"d","e":"` + long + ` é\u0000","F":"g"}`, "", "F=g,e=" + long + " é\x00"},
		"reserved": {`"labels":{"multicluster.kubernetes.io/service-name":"x","service.kubernetes.io/service-proxy-name":"x","kubernetes.io/service-name":"x","a":"b"},` +
			`"annotations":{"service.cilium.io/global":"false","io.cilium/shared-service":"false","skep.dev/imported-from-exports":"false","service.cilium.io/affinity":"local"}`, "a=b", "service.cilium.io/affinity=local"},
		"too many":            {`"annotations":{"a":"` + strings.Repeat("x", maxMetadata) + `","b":"c"},"labels":{"a":"b"}`, "a=b", ""},
		"a list":              {`"labels":["a"]`, "-", "-"},
		"numbers":             {`"annotations":{"a":1}`, "-", "-"},
		"an older key's text": {`"Labels":"a"`, "-", "-"},
	} {
		text := strings.Replace(exported("a", "Headless", 80), `"other":{"a":"b"}`, test.fields, 1)
		e, err := decodeServiceExport("a", web, []byte(text))
		if err != nil || test.labels == "-" {
			if test.labels != "-" || err == nil {
				t.Errorf("%s: %v, %v", name, e, err)
			}
			continue
		}
		labels, annotations := slim.MakeLabels(e.Labels).String(), slim.MakeLabels(e.Annotations).String()
		if labels != test.labels || annotations != test.annotations {
			t.Errorf("%s: labels %q and annotations %q", name, labels, annotations)
		}
	}
}

// MESH-17: what no Service of this release can have is left out.
func TestDecodeTraffic(t *testing.T) {
	for fields, want := range map[string]string{
		`"other":1`:                        "[]  ",
		`"ipFamilies":["IPv4"]`:            "[IPv4]  ",
		`"ipFamilies":["IPv6"]`:            "[IPv6]  ",
		`"ipFamilies":["IPv6","IPv4"]`:     "[IPv6 IPv4]  ",
		`"ipFamilies":["IPv4","IPv4"]`:     "[]  ",
		`"ipFamilies":["IPv4","IPv6","x"]`: "[]  ",
		`"ipFamilies":["ipv6"]`:            "[]  ",
		`"ipFamilies":[null]`:              "[]  ",
		`"ipFamilies":[]`:                  "[]  ",
		`"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"`:      "[] Local PreferClose",
		`"internalTrafficPolicy":"Cluster","trafficDistribution":"PreferSameNode"`: "[] Cluster PreferSameNode",
		`"internalTrafficPolicy":"local","trafficDistribution":"PreferEarth"`:      "[]  ",
		`"internalTrafficPolicy":null,"trafficDistribution":"","ipFamilies":null`:  "[]  ",
		`"ipFamilies":"IPv6"`:         "refused",
		`"ipFamilies":[6]`:            "refused",
		`"internalTrafficPolicy":{}`:  "refused",
		`"trafficDistribution":["x"]`: "refused",
	} {
		got := "refused"
		if e, err := decodeServiceExport("a", web, []byte(strings.Replace(exported("a", "Headless", 80), `"other":{"a":"b"}`, fields, 1))); err == nil {
			var policy, distribution string
			if e.InternalTrafficPolicy != nil {
				policy = string(*e.InternalTrafficPolicy)
			}
			if e.TrafficDistribution != nil {
				distribution = *e.TrafficDistribution
			}
			got = fmt.Sprintf("%v %s %s", e.IPFamilies, policy, distribution)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}

// MCS-32: what is exported is written under both keys, and read again as it was.
func TestEncodeMetadata(t *testing.T) {
	e, err := decodeServiceExport("a", web, []byte(exported("a", "Headless", 80)))
	if err != nil {
		t.Fatal(err)
	}
	e.Labels, e.Annotations = map[string]string{"b": "2", "a": "1"}, map[string]string{"c": "<3>"}
	text, err := json.Marshal(e)
	if err != nil || !strings.HasSuffix(string(text), `,"annotations":{"c":"\u003c3\u003e"},"labels":{"a":"1","b":"2"},"Annotations":{"c":"\u003c3\u003e"},"Labels":{"a":"1","b":"2"}}`) {
		t.Errorf("%s, %v", text, err)
	}
	if again, err := decodeServiceExport("a", web, text); err != nil || !reflect.DeepEqual(again, e) {
		t.Errorf("%+v, %v", again, err)
	}
}

// No value of another cluster makes the decoder fail otherwise than by an error, and what it returns can be written to objects.
func FuzzDecodeServiceExport(f *testing.F) {
	f.Add([]byte(exported("a", "Headless", 80)))
	f.Add([]byte(`{"labels":{"":""},"Labels":7,"ipFamilies":[null],"trafficDistribution":{},"internalTrafficPolicy":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decodeServiceExport("a", web, text)
		if err != nil {
			return
		}
		_, left := ExportedLabels(e.Labels)
		_, more := ExportedAnnotations(e.Annotations)
		if len(left)+len(more) > 0 {
			t.Errorf("labels %v and annotations %v", left, more)
		}
	})
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
