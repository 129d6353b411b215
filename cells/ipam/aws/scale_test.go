// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
)

// Nodes that join at once get their addresses for at most two changes and a tenth of a description each, as fast as the token
// buckets of EC2 allow: nothing is refused for its rate. make bench-aws has a thousand. AWS-3, AWS-6, CIPAM-8.
func TestScaleOut(t *testing.T) {
	s := newServer(t)
	scale := s.scale()
	scale.join(nodesOr(t, 30))
}

// The same while a tenth of the nodes has its addresses already: instances that the operator has not read yet join.
func TestGrowth(t *testing.T) {
	s := newServer(t)
	scale, count := s.scale(), nodesOr(t, 30)
	scale.join(count / 10)
	scale.join(count - count/10)
}

// scale is an operator whose nodes join, at an EC2 with its token buckets.
type scale struct {
	*server
	operator *operatortest.Operator
	nodes    int
	billed   map[string]int // calls, of which the bill is printed
}

func (s *server) scale() *scale {
	s.ec2.Throttling = true
	s.ec2.AddSubnet("subnet-b", "vpc-1", "eu-west-1a", "10.64.0.0/16", nil)
	o := s.startUnready("--limit-ipam-api-qps=5", "--limit-ipam-api-burst=90")
	o.Log().Wait(s.t, "caches synced, allocating addresses of the cloud")
	return &scale{server: s, operator: o}
}

// join has nodes join at once, waits until all have their addresses, and prints the bill.
func (s *scale) join(count int) {
	t := s.t
	t.Helper()
	held := s.env.Proxy.HoldWatch(t, "ciliumnodes", 0)
	operatortest.Eventually(t, "the watch is held", func() bool { return held.Hits(t) > 0 })
	for range count {
		instance := fmt.Sprintf("i-%d", s.nodes)
		s.machine(instance, "m5.large", "subnet-b")
		s.create(fmt.Sprintf("n%d", s.nodes), instance, "m5.large", nil)
		s.nodes++
	}
	began := time.Now()
	held.Remove(t)
	operatortest.EventuallyWithin(t, 3*time.Minute+time.Duration(count)*time.Second, "all nodes have addresses", func() bool {
		return s.operator.Metric("ipam_ips", "available") == float64(8*s.nodes)
	})
	took := time.Since(began)
	changes, descriptions := 0, 0
	calls := s.ec2.Calls()
	for _, operation := range slices.Sorted(maps.Keys(calls)) {
		n := calls[operation] - s.billed[operation]
		switch {
		case n == 0:
			continue
		case strings.HasPrefix(operation, "Describe"):
			descriptions += n
		case operation == "changes":
			changes = n
			continue
		}
		t.Logf("%-28s %6d  %.3f per node", operation, n, float64(n)/float64(count))
	}
	s.billed = calls
	t.Logf("%d nodes beside %d in %s: %d changes, %d descriptions, refused for their rate: %v",
		count, s.nodes-count, took.Round(time.Second), changes, descriptions, s.ec2.Throttled())
	const start = 9 + 9          // descriptions whatever the number of nodes: the complete read, and the burst; and six a minute
	const pace = 3 * time.Second // of descriptions: a 15th of five a second
	if most := start + 6*int(took.Minutes()) + max(count/10, int(took/pace)); changes > 2*count || descriptions > most {
		t.Errorf("%d changes and %d descriptions of %d nodes, at most %d and %d are good", changes, descriptions, count, 2*count, most)
	}
	if len(s.ec2.Throttled()) > 0 {
		t.Errorf("%v", s.ec2.Throttled())
	}
	operatortest.Eventually(t, "no node waits for its turn any more", func() bool { return s.operator.Degraded("ipam.aws") == "" })
}

// nodesOr is the number of nodes that make bench-aws asks for.
func nodesOr(t *testing.T, count int) int {
	t.Helper()
	text := os.Getenv("SKEP_NODES")
	if text == "" {
		return count
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What is kept of EC2 is a few kilobytes of each node: two interfaces, with nine addresses each. Of route tables only their ids are.
func TestMemory(t *testing.T) {
	const most = 8 << 10 // bytes of each node
	count := nodesOr(t, 200)
	c := ec2test.New()
	c.MaxInterfaces = 1 << 20
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.64.0.0/12", nil)
	serve(t, c)
	p := providerOf(t, Config{}, nil)
	for i := range count {
		if err := c.Run(fmt.Sprintf("i-%d", i), "m5.large", "subnet-a", map[string]string{"team": "net"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := k8s.WithCause(t.Context(), &k8s.Cause{Rule: "test"})
	for _, e := range c.Interfaces() {
		if _, err := p.session.assign(ctx, e.ID, order{addresses: 9}); err != nil {
			t.Fatal(err)
		}
		made, err := p.session.create(ctx, e.Instance, "subnet-a", []string{"sg-1"}, order{addresses: 9})
		if err == nil {
			_, err = p.session.attach(ctx, sdk.ToString(made.NetworkInterfaceId), e.Instance, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	if _, err := p.Read(t.Context()); err != nil { // what the SDK keeps is not counted
		t.Fatal(err)
	}
	p.setAccount(nil)
	before := heap()
	state, err := p.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after := heap()
	each := (int64(after) - int64(before)) / int64(count)
	t.Logf("%d nodes: %.1f MB are kept, %d bytes of each", count, float64(int64(after)-int64(before))/1e6, each)
	if each > most {
		t.Errorf("%d bytes of each node are kept, at most %d are good", each, most)
	}
	if n := len(state.Instances); n != count || len(state.Instances["i-0"].Interfaces) != 2 {
		t.Errorf("%d instances are read, %d interfaces of the first", n, len(state.Instances["i-0"].Interfaces))
	}
	runtime.KeepAlive(p)
}
