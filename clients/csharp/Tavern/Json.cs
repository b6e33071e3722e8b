// A small JSON reader and writer, so that the client needs no other library. Must hold: input that is not JSON is refused, whatever it
// is; depth is bounded; a number is kept as it was written.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.Reflection;
using System.Text;

namespace Tavern
{
    /// <summary>The kinds of JSON values.</summary>
    public enum JsonKind { Null, Bool, Number, String, Array, Object }

    /// <summary>A JSON value. What is missing is <see cref="Null"/>, so members can be read without checks.</summary>
    public sealed class JsonValue : IEquatable<JsonValue>
    {
        static readonly IReadOnlyList<JsonValue> NoItems = new JsonValue[0];
        static readonly IReadOnlyDictionary<string, JsonValue> NoMembers = new Dictionary<string, JsonValue>();

        /// <summary>The value null.</summary>
        public static readonly JsonValue Null = new JsonValue(JsonKind.Null, "null", NoItems, NoMembers);

        readonly string text;

        JsonValue(JsonKind kind, string text, IReadOnlyList<JsonValue> items, IReadOnlyDictionary<string, JsonValue> members)
        {
            Kind = kind;
            this.text = text;
            Items = items;
            Members = members;
        }

        internal static JsonValue OfBool(bool value) => new JsonValue(JsonKind.Bool, value ? "true" : "false", NoItems, NoMembers);
        internal static JsonValue OfNumber(string digits) => new JsonValue(JsonKind.Number, digits, NoItems, NoMembers);
        internal static JsonValue OfString(string value) => new JsonValue(JsonKind.String, value, NoItems, NoMembers);
        internal static JsonValue OfItems(List<JsonValue> items) => new JsonValue(JsonKind.Array, null, items, NoMembers);
        internal static JsonValue OfMembers(Dictionary<string, JsonValue> members) => new JsonValue(JsonKind.Object, null, NoItems, members);

        /// <summary>What this is.</summary>
        public JsonKind Kind { get; }

        /// <summary>The elements of an array; empty for anything else.</summary>
        public IReadOnlyList<JsonValue> Items { get; }

        /// <summary>The members of an object; empty for anything else.</summary>
        public IReadOnlyDictionary<string, JsonValue> Members { get; }

        /// <summary>A member of an object, or <see cref="Null"/>.</summary>
        public JsonValue this[string name] => Members.TryGetValue(name, out var found) ? found : Null;

        /// <summary>An element of an array, or <see cref="Null"/>.</summary>
        public JsonValue this[int at] => at >= 0 && at < Items.Count ? Items[at] : Null;

        /// <summary>Whether an object has this member.</summary>
        public bool Has(string name) => Members.ContainsKey(name);

        /// <summary>Whether this is null.</summary>
        public bool IsNull => Kind == JsonKind.Null;

        /// <summary>The string, or this.</summary>
        public string AsString(string otherwise = null) => Kind == JsonKind.String ? text : otherwise;

        /// <summary>The boolean, or this.</summary>
        public bool AsBool(bool otherwise = false) => Kind == JsonKind.Bool ? text == "true" : otherwise;

        /// <summary>The number, or this.</summary>
        public double AsDouble(double otherwise = 0) =>
            Kind == JsonKind.Number && double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var number) ? number : otherwise;

        /// <summary>The whole number, or this.</summary>
        public long AsLong(long otherwise = 0) => WholeNumber ?? otherwise;

        /// <summary>The whole number, or this.</summary>
        public int AsInt(int otherwise = 0) => TryLong(out var number) && number >= int.MinValue && number <= int.MaxValue ? (int)number : otherwise;

        internal bool TryLong(out long number)
        {
            number = 0;
            return Kind == JsonKind.Number && long.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out number);
        }

        internal long? WholeNumber => TryLong(out var number) ? number : (long?)null;

        /// <summary>Reads the value into a type: a number, string, bool, enum, array, list, dictionary, or a class with public fields or properties.
        /// The names of members are compared without case and underscores.</summary>
        /// <exception cref="FormatException">The value does not fit.</exception>
        public T To<T>() => (T)JsonMapper.Read(this, typeof(T));

        /// <summary>Reads JSON.</summary>
        /// <exception cref="FormatException">It is not JSON.</exception>
        public static JsonValue Parse(string json) => new JsonReader(json).ReadAll();

        /// <summary>Makes JSON of a value: null, bool, string, number, enum, JsonValue, a dictionary, a list, or the public fields and properties of an
        /// object.</summary>
        /// <exception cref="ArgumentException">It cannot be written as JSON.</exception>
        public static JsonValue From(object value) => value as JsonValue ?? Parse(JsonMapper.Write(value));

        /// <summary>The JSON.</summary>
        public override string ToString()
        {
            var into = new StringBuilder();
            WriteTo(into);
            return into.ToString();
        }

        internal void WriteTo(StringBuilder into)
        {
            switch (Kind)
            {
                case JsonKind.String:
                    JsonMapper.WriteString(into, text);
                    break;
                case JsonKind.Array:
                    into.Append('[');
                    for (var at = 0; at < Items.Count; at++)
                    {
                        if (at > 0) into.Append(',');
                        Items[at].WriteTo(into);
                    }
                    into.Append(']');
                    break;
                case JsonKind.Object:
                    into.Append('{');
                    var first = true;
                    foreach (var member in Members)
                    {
                        if (!first) into.Append(',');
                        first = false;
                        JsonMapper.WriteString(into, member.Key);
                        into.Append(':');
                        member.Value.WriteTo(into);
                    }
                    into.Append('}');
                    break;
                default:
                    into.Append(text);
                    break;
            }
        }

        /// <summary>Whether the JSON is the same; the order of members does not count.</summary>
        public bool Equals(JsonValue other)
        {
            if (ReferenceEquals(other, null) || Kind != other.Kind || text != other.text) return false;
            if (Items.Count != other.Items.Count || Members.Count != other.Members.Count) return false;
            for (var at = 0; at < Items.Count; at++)
                if (!Items[at].Equals(other.Items[at])) return false;
            foreach (var member in Members)
                if (!other.Members.TryGetValue(member.Key, out var value) || !member.Value.Equals(value)) return false;
            return true;
        }

        public override bool Equals(object other) => Equals(other as JsonValue);

        public override int GetHashCode() => (int)Kind * 31 + (text?.GetHashCode() ?? Items.Count + Members.Count);
    }

    internal sealed class JsonReader
    {
        // Deeper values are refused: each level needs stack.
        const int MostLevels = 128;
        readonly string json;
        int at, level;

        internal JsonReader(string json)
        {
            this.json = json ?? throw new ArgumentNullException(nameof(json));
        }

        internal JsonValue ReadAll()
        {
            var value = Value();
            Space();
            if (at < json.Length) throw Wrong("more follows");
            return value;
        }

        FormatException Wrong(string what) => new FormatException($"not JSON: {what} at {at}");

        char Next => at < json.Length ? json[at] : '\0';

        void Space()
        {
            while (at < json.Length && (json[at] == ' ' || json[at] == '\n' || json[at] == '\r' || json[at] == '\t')) at++;
        }

        bool Take(char wanted)
        {
            Space();
            if (Next != wanted || at >= json.Length) return false;
            at++;
            return true;
        }

        JsonValue Value()
        {
            Space();
            switch (Next)
            {
                case '{': return Deeper(Object);
                case '[': return Deeper(Array);
                case '"': return JsonValue.OfString(String());
                case 't': return Word("true", JsonValue.OfBool(true));
                case 'f': return Word("false", JsonValue.OfBool(false));
                case 'n': return Word("null", JsonValue.Null);
                default: return Number();
            }
        }

        JsonValue Deeper(Func<JsonValue> read)
        {
            if (++level > MostLevels) throw Wrong("too many levels");
            at++;
            var value = read();
            level--;
            return value;
        }

        JsonValue Word(string word, JsonValue value)
        {
            if (string.CompareOrdinal(json, at, word, 0, word.Length) != 0) throw Wrong("an unknown word");
            at += word.Length;
            return value;
        }

        JsonValue Object()
        {
            var members = new Dictionary<string, JsonValue>();
            if (Take('}')) return JsonValue.OfMembers(members);
            do
            {
                Space();
                if (Next != '"') throw Wrong("no name of a member");
                var name = String();
                if (!Take(':')) throw Wrong("no colon");
                members[name] = Value();
            } while (Take(','));
            if (!Take('}')) throw Wrong("no end of an object");
            return JsonValue.OfMembers(members);
        }

        JsonValue Array()
        {
            var items = new List<JsonValue>();
            if (Take(']')) return JsonValue.OfItems(items);
            do items.Add(Value());
            while (Take(','));
            if (!Take(']')) throw Wrong("no end of an array");
            return JsonValue.OfItems(items);
        }

        JsonValue Number()
        {
            var start = at;
            if (Next == '-') at++;
            if (Next == '0') at++;
            else Digits();
            if (Next == '.')
            {
                at++;
                Digits();
            }
            if (Next == 'e' || Next == 'E')
            {
                at++;
                if (Next == '+' || Next == '-') at++;
                Digits();
            }
            return JsonValue.OfNumber(json.Substring(start, at - start));
        }

        void Digits()
        {
            var start = at;
            while (Next >= '0' && Next <= '9') at++;
            if (at == start) throw Wrong("no value");
        }

        string String()
        {
            at++;
            var start = at;
            // Most strings have no escapes.
            while (at < json.Length && json[at] != '"' && json[at] != '\\' && json[at] >= ' ') at++;
            if (Next == '"' && at < json.Length) return json.Substring(start, at++ - start);
            var into = new StringBuilder(json, start, at - start, Math.Max(16, at - start));
            while (true)
            {
                if (at >= json.Length) throw Wrong("no end of a string");
                var one = json[at++];
                if (one == '"') return into.ToString();
                if (one < ' ') throw Wrong("a control character in a string");
                into.Append(one == '\\' ? Escaped() : one);
            }
        }

        char Escaped()
        {
            var one = Next;
            at++;
            switch (one)
            {
                case '"': case '\\': case '/': return one;
                case 'b': return '\b';
                case 'f': return '\f';
                case 'n': return '\n';
                case 'r': return '\r';
                case 't': return '\t';
                case 'u':
                    if (at + 4 <= json.Length && ushort.TryParse(json.Substring(at, 4), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var code))
                    {
                        at += 4;
                        return (char)code;
                    }
                    break;
            }
            throw Wrong("an unknown escape");
        }
    }

    /// <summary>JSON from and to other types, by reflection.</summary>
    internal static class JsonMapper
    {
        const int MostLevels = 64;
        const BindingFlags Public = BindingFlags.Instance | BindingFlags.Public;

        internal static string Write(object value)
        {
            var into = new StringBuilder();
            Write(into, value, 0);
            return into.ToString();
        }

        internal static void Write(StringBuilder into, object value, int level)
        {
            if (level > MostLevels) throw new ArgumentException("not JSON: too many levels, or an object that contains itself");
            if (value == null) into.Append("null");
            else if (value is JsonValue json) json.WriteTo(into);
            else if (value is string text) WriteString(into, text);
            else if (value is bool truth) into.Append(truth ? "true" : "false");
            else if (value is Enum || value is char) WriteString(into, value.ToString());
            else if (value is double number) WriteNumber(into, number, number.ToString("R", CultureInfo.InvariantCulture));
            else if (value is float single) WriteNumber(into, single, single.ToString("R", CultureInfo.InvariantCulture));
            else if (value is sbyte || value is byte || value is short || value is ushort || value is int || value is uint || value is long || value is ulong || value is decimal)
                into.Append(((IFormattable)value).ToString(null, CultureInfo.InvariantCulture));
            else if (value is IDictionary map) WriteMembers(into, Entries(map), level);
            else if (value is IEnumerable list) WriteItems(into, list, level);
            else if (value.GetType().Namespace == "System" || value is Delegate)
                throw new ArgumentException($"not JSON: {value.GetType()}; convert it first, for example a date to a string");
            else WriteMembers(into, Properties(value), level);
        }

        static void WriteNumber(StringBuilder into, double number, string text)
        {
            if (double.IsNaN(number) || double.IsInfinity(number)) throw new ArgumentException($"not JSON: the number {text}");
            into.Append(text);
        }

        static IEnumerable<KeyValuePair<string, object>> Entries(IDictionary map)
        {
            foreach (DictionaryEntry entry in map)
                yield return new KeyValuePair<string, object>(entry.Key as string ?? throw new ArgumentException("not JSON: a key that is not a string"), entry.Value);
        }

        static IEnumerable<KeyValuePair<string, object>> Properties(object value)
        {
            foreach (var field in value.GetType().GetFields(Public))
                yield return new KeyValuePair<string, object>(field.Name, field.GetValue(value));
            foreach (var property in value.GetType().GetProperties(Public))
                if (property.CanRead && property.GetIndexParameters().Length == 0)
                    yield return new KeyValuePair<string, object>(property.Name, property.GetValue(value));
        }

        static void WriteMembers(StringBuilder into, IEnumerable<KeyValuePair<string, object>> members, int level)
        {
            into.Append('{');
            var first = true;
            foreach (var member in members)
            {
                if (!first) into.Append(',');
                first = false;
                WriteString(into, member.Key);
                into.Append(':');
                Write(into, member.Value, level + 1);
            }
            into.Append('}');
        }

        static void WriteItems(StringBuilder into, IEnumerable list, int level)
        {
            into.Append('[');
            var first = true;
            foreach (var item in list)
            {
                if (!first) into.Append(',');
                first = false;
                Write(into, item, level + 1);
            }
            into.Append(']');
        }

        internal static void WriteString(StringBuilder into, string text)
        {
            into.Append('"');
            for (var at = 0; at < text.Length; at++)
            {
                var one = text[at];
                if (one == '"' || one == '\\') into.Append('\\').Append(one);
                else if (one == '\n') into.Append("\\n");
                // Half a surrogate pair has no UTF-8 form.
                else if (one < ' ' || (char.IsSurrogate(one) && !IsPair(text, at))) into.Append("\\u").Append(((int)one).ToString("x4", CultureInfo.InvariantCulture));
                else into.Append(one);
            }
            into.Append('"');
        }

        static bool IsPair(string text, int at) =>
            char.IsHighSurrogate(text[at]) ? at + 1 < text.Length && char.IsLowSurrogate(text[at + 1]) : at > 0 && char.IsHighSurrogate(text[at - 1]);

        internal static object Read(JsonValue value, Type type)
        {
            if (type == typeof(JsonValue) || type == typeof(object)) return value;
            var inner = Nullable.GetUnderlyingType(type);
            if (value.IsNull && (inner != null || !type.IsValueType)) return null;
            type = inner ?? type;
            if (type == typeof(string)) return value.AsString() ?? throw Unfit(value, type);
            if (type == typeof(bool)) return value.Kind == JsonKind.Bool ? value.AsBool() : throw Unfit(value, type);
            if (type.IsEnum) return ReadEnum(value, type);
            if (type.IsPrimitive || type == typeof(decimal)) return ReadNumber(value, type);
            if (type.IsArray) return ReadArray(value, type.GetElementType());
            if (typeof(IList).IsAssignableFrom(type)) return ReadList(value, type);
            if (typeof(IDictionary).IsAssignableFrom(type)) return ReadDictionary(value, type);
            return ReadObject(value, type);
        }

        static FormatException Unfit(JsonValue value, Type type) => new FormatException($"a JSON {value.Kind} is no {type.Name}");

        static object ReadNumber(JsonValue value, Type type)
        {
            if (value.Kind != JsonKind.Number) throw Unfit(value, type);
            try
            {
                return type == typeof(double) || type == typeof(float)
                    ? Convert.ChangeType(value.AsDouble(), type, CultureInfo.InvariantCulture)
                    : Convert.ChangeType(value.ToString(), type, CultureInfo.InvariantCulture);
            }
            catch (Exception failure) when (failure is OverflowException || failure is FormatException || failure is InvalidCastException)
            {
                throw new FormatException($"{value} is no {type.Name}", failure);
            }
        }

        static object ReadEnum(JsonValue value, Type type)
        {
            var name = Plain(value.AsString() ?? throw Unfit(value, type));
            foreach (var word in Enum.GetNames(type))
                if (Plain(word) == name) return Enum.Parse(type, word);
            throw new FormatException($"{value} is no {type.Name}");
        }

        static object ReadArray(JsonValue value, Type item)
        {
            if (value.Kind != JsonKind.Array) throw Unfit(value, item);
            var array = System.Array.CreateInstance(item, value.Items.Count);
            for (var at = 0; at < value.Items.Count; at++) array.SetValue(Read(value.Items[at], item), at);
            return array;
        }

        static object ReadList(JsonValue value, Type type)
        {
            if (value.Kind != JsonKind.Array || !type.IsGenericType) throw Unfit(value, type);
            var list = (IList)Activator.CreateInstance(type);
            foreach (var item in value.Items) list.Add(Read(item, type.GetGenericArguments()[0]));
            return list;
        }

        static object ReadDictionary(JsonValue value, Type type)
        {
            if (value.Kind != JsonKind.Object || !type.IsGenericType || type.GetGenericArguments()[0] != typeof(string)) throw Unfit(value, type);
            var map = (IDictionary)Activator.CreateInstance(type);
            foreach (var member in value.Members) map.Add(member.Key, Read(member.Value, type.GetGenericArguments()[1]));
            return map;
        }

        static object ReadObject(JsonValue value, Type type)
        {
            if (value.Kind != JsonKind.Object) throw Unfit(value, type);
            var given = new Dictionary<string, JsonValue>();
            foreach (var member in value.Members) given[Plain(member.Key)] = member.Value;
            var made = Activator.CreateInstance(type);
            foreach (var field in type.GetFields(Public))
                if (given.TryGetValue(Plain(field.Name), out var found)) field.SetValue(made, Read(found, field.FieldType));
            foreach (var property in type.GetProperties(Public))
                if (property.CanWrite && property.GetIndexParameters().Length == 0 && given.TryGetValue(Plain(property.Name), out var found))
                    property.SetValue(made, Read(found, property.PropertyType));
            return made;
        }

        static string Plain(string name) => name.Replace("_", "").ToLowerInvariant();
    }
}
