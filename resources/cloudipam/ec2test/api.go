// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// operation carries out a request and returns the body of its response.
type operation struct {
	changes bool
	do      func(*Cloud, request) (any, *Error)
}

var operations = map[string]operation{
	"DescribeVpcs":                    {false, (*Cloud).describeVpcs},
	"DescribeSubnets":                 {false, (*Cloud).describeSubnets},
	"DescribeSecurityGroups":          {false, (*Cloud).describeSecurityGroups},
	"DescribeNetworkInterfaces":       {false, (*Cloud).describeNetworkInterfaces},
	"DescribeInstances":               {false, (*Cloud).describeInstances},
	"DescribeInstanceTypes":           {false, (*Cloud).describeInstanceTypes},
	"DescribeTags":                    {false, (*Cloud).describeTags},
	"DescribeRouteTables":             {false, (*Cloud).describeRouteTables},
	"DescribeAddresses":               {false, (*Cloud).describeAddresses},
	"AssociateAddress":                {true, (*Cloud).associateAddress},
	"CreateNetworkInterface":          {true, (*Cloud).createNetworkInterface},
	"AttachNetworkInterface":          {true, (*Cloud).attachNetworkInterface},
	"ModifyNetworkInterfaceAttribute": {true, (*Cloud).modifyNetworkInterfaceAttribute},
	"AssignPrivateIpAddresses":        {true, (*Cloud).assignPrivateIPAddresses},
	"AssignIpv6Addresses":             {true, (*Cloud).assignIPv6Addresses},
	"UnassignPrivateIpAddresses":      {true, (*Cloud).unassignPrivateIPAddresses},
	"DeleteNetworkInterface":          {true, (*Cloud).deleteNetworkInterface},
}

// request are the parameters of a request.
type request struct {
	values url.Values
	fault  Fault
}

func (r request) text(name string) string { return r.values.Get(name) }

func (r request) number(name string) (int, *Error) {
	text := r.text(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, invalid("Value (%s) for parameter %s is invalid.", text, name)
	}
	return n, nil
}

// list are the values of a parameter that is a list: Name.1, Name.2.
func (r request) list(name string) (all []string) {
	for n := 1; r.values.Has(fmt.Sprintf("%s.%d", name, n)); n++ {
		all = append(all, r.text(fmt.Sprintf("%s.%d", name, n)))
	}
	return all
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: "InvalidParameterValue", Message: fmt.Sprintf(format, args...)}
}

func notFound(kind, id string) *Error {
	return &Error{Code: "Invalid" + kind + ".NotFound", Message: fmt.Sprintf("The ID '%s' does not exist", id)}
}

// version is that of the API.
const version = "2016-11-15"

// ServeHTTP serves the query API of EC2.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		c.answerError(w, &Error{Code: "MalformedQueryString", Message: err.Error()})
		return
	}
	body, slow, lost, err := c.handle(r)
	if d := c.Latency + slow; d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case lost:
		if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = connection.Close()
		}
	case err != nil:
		c.answerError(w, err)
	default:
		c.answer(w, http.StatusOK, r.Form.Get("Action")+"Response", body)
	}
}

func (c *Cloud) handle(r *http.Request) (body any, slow time.Duration, lost bool, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := r.Form.Get("Action")
	op, known := operations[name]
	switch {
	case !known:
		return nil, 0, false, &Error{Code: "InvalidAction", Message: fmt.Sprintf("The action %s is not valid for this web service.", name)}
	case r.Form.Get("Version") != version:
		return nil, 0, false, &Error{Code: "NoSuchVersion", Message: fmt.Sprintf("The requested version (%s) of service AmazonEC2 does not exist", r.Form.Get("Version"))}
	}
	if err := c.authenticate(r); err != nil {
		return nil, 0, false, err
	}
	req := request{values: r.Form}
	if c.Throttling && !c.bucketOf(name, req).allow(c.now()) {
		c.refused[name]++
		return nil, 0, false, &Error{http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."}
	}
	c.calls[name]++
	if c.Fault != nil {
		parameters := map[string]string{}
		for key := range r.Form {
			parameters[key] = r.Form.Get(key)
		}
		req.fault = c.Fault(name, parameters)
	}
	if req.fault.Refuse != nil {
		return nil, req.fault.Slow, false, req.fault.Refuse
	}
	if r.Form.Get("DryRun") == "true" {
		return nil, 0, false, &Error{http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."}
	}
	if c.PagesOnly && isUnpaged(name, req) {
		return nil, req.fault.Slow, false, &Error{Code: "OperationNotPermitted", Message: "You must use pagination: specify MaxResults."}
	}
	if body, err = op.do(c, req); err == nil && op.changes {
		c.calls[changed]++
	}
	return body, req.fault.Slow, req.fault.Lose, err
}

// isUnpaged reports whether a request is for a whole list at once, of those that have pages.
func isUnpaged(name string, r request) bool {
	return strings.HasPrefix(name, "Describe") && name != "DescribeAddresses" && r.text("MaxResults") == "" &&
		!r.values.Has("NetworkInterfaceId.1") && !r.values.Has("InstanceType.1")
}

// authenticate checks who signed a request, and not the signature.
func (c *Cloud) authenticate(r *http.Request) *Error {
	const algorithm = "AWS4-HMAC-SHA256 Credential="
	credential, signed := strings.CutPrefix(r.Header.Get("Authorization"), algorithm)
	if !signed {
		return &Error{http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials"}
	}
	scope := strings.Split(strings.SplitN(credential, ",", 2)[0], "/")
	if len(scope) != 5 || scope[2] != c.Region || scope[3] != "ec2" {
		return &Error{http.StatusUnauthorized, "AuthFailure", "Credential should be scoped to a valid region and to the service ec2"}
	}
	if c.Credential != nil && scope[0] != c.Credential() {
		return &Error{http.StatusBadRequest, "RequestExpired", "Request has expired."}
	}
	return nil
}

type errorResponse struct {
	XMLName xml.Name `xml:"Response"`
	Errors  []struct {
		Code    string
		Message string
	} `xml:"Errors>Error"`
	RequestID string
}

func (c *Cloud) answerError(w http.ResponseWriter, err *Error) {
	status := err.Status
	if status == 0 {
		status = http.StatusBadRequest
	}
	body := errorResponse{RequestID: "00000000-0000-4000-8000-000000000000"}
	body.Errors = append(body.Errors, struct{ Code, Message string }{err.Code, err.Message})
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(xml.Header))
	_ = xml.NewEncoder(w).Encode(body)
}

func (c *Cloud) answer(w http.ResponseWriter, status int, name string, body any) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(xml.Header))
	e := xml.NewEncoder(w)
	_ = e.EncodeElement(body, xml.StartElement{Name: xml.Name{Local: name}, Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "http://ec2.amazonaws.com/doc/" + version + "/"}}})
}

// bucket is the token bucket of an operation.
type bucket struct {
	size, refill, tokens float64
	at                   time.Time
}

func (b *bucket) allow(now time.Time) bool {
	b.tokens = min(b.size, b.tokens+b.refill*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// bucketOf has the sizes that EC2 publishes: 100 and 20 per second for descriptions, half of that for those without filter
// and page; 100 and 5 for changes of interfaces.
func (c *Cloud) bucketOf(name string, r request) *bucket {
	key, size, refill := name, 100.0, 20.0
	switch {
	case operations[name].changes:
		refill = 5
	case r.text("MaxResults") == "" && !r.values.Has("Filter.1.Name"):
		key, size, refill = name+" unfiltered", 50, 10
	}
	if c.buckets[key] == nil {
		c.buckets[key] = &bucket{size, refill, size, c.now()}
	}
	return c.buckets[key]
}

// Operations are the names of all that is served, those that change something among them.
func Operations() (names []string) {
	for name := range operations {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
