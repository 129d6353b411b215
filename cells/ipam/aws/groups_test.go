// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
)

// look returns the addresses of a group, sorted and each once, or the error.
func look(t *testing.T, p *provider, group string) string {
	t.Helper()
	found, err := groups{p.session}.Addresses(t.Context(), json.RawMessage(group))
	if err != nil {
		return err.Error()
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return fmt.Sprint(slices.Compact(found))
}

// fleet is a region with three instances: those of i-web and i-db have the tag role, and i-db is stopped.
func fleet(t *testing.T) *ec2test.Cloud {
	t.Helper()
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	c.AddGroup("sg-web", "vpc-1", nil)
	c.AddGroup("sg-db", "vpc-1", nil)
	for id, tags := range map[string]map[string]string{"i-web": {"role": "web", "tier": "1"}, "i-db": {"role": "db"}, "i-other": nil} {
		if err := c.Run(id, "m5.large", "subnet-a", tags); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range c.Interfaces() {
		switch e.Instance {
		case "i-web":
			c.SetGroups(e.ID, "sg-web")
			c.Associate(e.Primary, "3.3.3.3")
		case "i-db":
			c.SetGroups(e.ID, "sg-web", "sg-db")
		}
	}
	c.SetState("i-db", "stopped")
	return c
}

// addressOf is the first address of an instance.
func addressOf(t *testing.T, c *ec2test.Cloud, instance string) string {
	t.Helper()
	for _, e := range c.Interfaces() {
		if e.Instance == instance {
			return e.Primary
		}
	}
	t.Fatalf("%s has no interface", instance)
	return ""
}

func sorted(addresses ...string) string {
	slices.SortFunc(addresses, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
	return "[" + strings.Join(addresses, " ") + "]"
}

// AWS-26, AWS-E15: groups by security groups and by tags.
func TestGroups(t *testing.T) {
	c := fleet(t)
	serve(t, c)
	p := providerOf(t, Config{}, nil)
	web, db := addressOf(t, c, "i-web"), addressOf(t, c, "i-db")
	for group, want := range map[string]string{
		`{"securityGroupsIds":["sg-web"]}`:                                         sorted(web, db, "3.3.3.3"),
		`{"securityGroupsIds":["sg-web","sg-db"]}`:                                 sorted(web, db, "3.3.3.3"),
		`{"securityGroupsNames":["name-of-sg-db"]}`:                                sorted(db),
		`{"securityGroupsIds":["sg-web"],"securityGroupsNames":["name-of-sg-db"]}`: sorted(db),
		`{"labels":{"role":"web"}}`:                                                sorted(web, "3.3.3.3"),
		`{"labels":{"role":"db"}}`:                                                 sorted(db),
		`{"labels":{"role":"web","tier":"2"}}`:                                     "[]",
		`{"labels":{"role":"web"},"securityGroupsIds":["sg-db"]}`:                  sorted(web, db, "3.3.3.3"),
		`{"securityGroupsIds":["sg-none"]}`:                                        "[]",
		`{"region":"eu-west-1","labels":{"role":"db"}}`:                            sorted(db),
		`{}`: "[]",
		`{"region":"evil.example.com/","labels":{"role":"db"}}`: `region "evil.example.com/" is none: use a name such as eu-west-1`,
		`{"labels":"x"}`: "decoding a group: json: cannot unmarshal string into Go struct field AWSGroup.labels of type map[string]string",
		`{"securityGroupsIds":["` + strings.Repeat(`sg-1","`, maxFilterValues) + `sg-1"]}`: "a group has more than 200 security groups or labels: divide it, EC2 takes no more in a filter",
	} {
		if got := look(t, p, group); got != want {
			t.Errorf("%.80s\n\tgot  %s\n\twant %s", group, got, want)
		}
	}
	if n := c.Changes(); n != 0 {
		t.Errorf("%d changes", n)
	}
}

// AWS-26: all pages are read, and a failure is an error, not a smaller group.
func TestPagesOfAGroup(t *testing.T) {
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	for i := range 12 {
		if err := c.Run(fmt.Sprintf("i-%02d", i), "m5.large", "subnet-a", map[string]string{"role": "web"}); err != nil {
			t.Fatal(err)
		}
	}
	pages := 0
	c.Fault = func(string, map[string]string) (f ec2test.Fault) {
		if pages++; pages == 6 {
			f.Refuse = &ec2test.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
		}
		return f
	}
	serve(t, c)
	p := providerOf(t, Config{AWSMaxResultsPerCall: 5}, nil)
	if _, err := p.session.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages = 0
	if got := look(t, p, `{"securityGroupsIds":["sg-1"]}`); len(strings.Fields(got)) != 12 || pages != 3 {
		t.Errorf("%d pages: %s", pages, got)
	}
	if got := look(t, p, `{"labels":{"role":"web"}}`); !strings.Contains(got, "InternalError") {
		t.Errorf("the last page failed: %s", got)
	}
	if got := look(t, p, `{"labels":{"role":"web"}}`); len(strings.Fields(got)) != 12 {
		t.Errorf("afterwards: %s", got)
	}
}

// AWS-27, AWS-E16: a group of another region.
func TestGroupOfAnotherRegion(t *testing.T) {
	here, there := fleet(t), ec2test.New()
	there.Region = "us-east-1"
	there.AddSubnet("subnet-u", "vpc-1", "us-east-1a", "10.9.0.0/24", nil)
	if err := there.Run("i-u", "m5.large", "subnet-u", map[string]string{"role": "db"}); err != nil {
		t.Fatal(err)
	}
	serve(t, here)
	setenv(t, "AWS_ENDPOINT_URL_EC2", newFront(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "/us-east-1/") {
			there.ServeHTTP(w, r)
			return
		}
		here.ServeHTTP(w, r)
	})))
	p := providerOf(t, Config{}, nil)
	if got, want := look(t, p, `{"region":"us-east-1","labels":{"role":"db"}}`), sorted(addressOf(t, there, "i-u")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := look(t, p, `{"labels":{"role":"db"}}`), sorted(addressOf(t, here, "i-db")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p.session.begun.endpoint = "ec2.eu-west-1.example.com"
	if got := look(t, p, `{"region":"us-east-1","labels":{"role":"db"}}`); got !=
		"region us-east-1 cannot be reached: --ec2-api-endpoint is ec2.eu-west-1.example.com, which serves eu-west-1" {
		t.Error(got)
	}
}

// Without the metadata service a look-up fails, and does not select nothing.
func TestGroupWithoutASession(t *testing.T) {
	serve(t, fleet(t))
	setenv(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", newFront(t, http.NotFoundHandler()))
	_ = os.Unsetenv("AWS_REGION")
	if got := look(t, providerOf(t, Config{}, nil), `{"labels":{"role":"db"}}`); !strings.Contains(got, "instance identity document") {
		t.Error(got)
	}
}
